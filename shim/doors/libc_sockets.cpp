// SPDX-License-Identifier: MIT
// Doors of sockets. A call may wait for as long as the other side wants: it is given bounce memory or the view, and
// nothing of an object is held meanwhile.
//
// Handled: send, sendto, sendmsg, sendmmsg, recv, recvfrom, recvmsg, recvmmsg and the fortified forms: the bytes of the
// message. Addresses, control messages and the structures themselves are taken where they lie.
// Left out: MSG_ZEROCOPY's promise, where the range lies in more than one object: the bytes are copied at once.
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"
#include "shim/doors/libc_vectors.h"

using hpe::doors::holding;
using hpe::doors::into;
using hpe::doors::Next;
using hpe::doors::out_of;
using hpe::doors::parts_of;
using hpe::doors::VectorToRead;
using hpe::doors::VectorToWrite;
namespace lease = hpe::lease;

#define CALLER __builtin_return_address(0)

namespace {

constinit Next<ssize_t(int, const void*, std::size_t, int)> next_send{"send"};
constinit Next<ssize_t(int, const void*, std::size_t, int, const sockaddr*, socklen_t)> next_sendto{"sendto"};
constinit Next<ssize_t(int, const msghdr*, int)> next_sendmsg{"sendmsg"};
constinit Next<int(int, mmsghdr*, unsigned, int)> next_sendmmsg{"sendmmsg"};
constinit Next<ssize_t(int, void*, std::size_t, int)> next_recv{"recv"};
constinit Next<ssize_t(int, void*, std::size_t, int, sockaddr*, socklen_t*)> next_recvfrom{"recvfrom"};
constinit Next<ssize_t(int, msghdr*, int)> next_recvmsg{"recvmsg"};
constinit Next<int(int, mmsghdr*, unsigned, int, timespec*)> next_recvmmsg{"recvmmsg"};
constinit Next<ssize_t(int, void*, std::size_t, std::size_t, int)> next_recv_chk{"__recv_chk"};
constinit Next<ssize_t(int, void*, std::size_t, std::size_t, int, sockaddr*, socklen_t*)> next_recvfrom_chk{
    "__recvfrom_chk"};

bool concerns(const msghdr* message) noexcept {
    return message != nullptr &&
           hpe::doors::concerns(parts_of(message->msg_iov, static_cast<long>(message->msg_iovlen)));
}

ssize_t send_one(int socket, const msghdr& message, int flags, const void* caller) {
    VectorToRead vector(parts_of(message.msg_iov, static_cast<long>(message.msg_iovlen)), caller);
    if (!vector.ok()) return -1;
    msghdr other = message;
    other.msg_iov = vector.parts();
    other.msg_iovlen = static_cast<std::size_t>(vector.count());
    return holding(vector, [&] { return next_sendmsg(socket, &other, flags); });
}

ssize_t receive_one(int socket, msghdr& message, int flags, const void* caller) {
    VectorToWrite vector(parts_of(message.msg_iov, static_cast<long>(message.msg_iovlen)));
    if (!vector.ok()) return -1;
    msghdr other = message;
    other.msg_iov = vector.parts();
    const ssize_t got = holding(vector, [&] { return next_recvmsg(socket, &other, flags); });
    if (got >= 0) {
        message.msg_namelen = other.msg_namelen;
        message.msg_controllen = other.msg_controllen;
        message.msg_flags = other.msg_flags;
    }
    if (got > 0) vector.store(static_cast<std::size_t>(got), caller);
    return got;
}

template <class Message>
bool any_concerns(const Message* messages, unsigned count) noexcept {
    return messages != nullptr &&
           std::any_of(messages, messages + count, [](const mmsghdr& m) { return concerns(&m.msg_hdr); });
}

// recvmmsg(2): once a message has come, the call gives up at the end of its time.
class Deadline {
public:
    explicit Deadline(timespec* rest) noexcept : rest_(rest) {
        if (rest_ != nullptr) until_ = now() + rest_->tv_sec * kSecond + rest_->tv_nsec;
    }
    bool passed() noexcept {
        if (rest_ == nullptr) return false;
        const auto left = std::max(until_ - now(), 0L);
        *rest_ = {left / kSecond, left % kSecond};
        return left == 0;
    }

private:
    static constexpr long kSecond = 1000000000;
    static long now() noexcept {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec * kSecond + time.tv_nsec;
    }
    timespec* const rest_;
    long until_ = 0;
};

}  // namespace

extern "C" {

HPE_DOOR ssize_t send(int socket, const void* at, std::size_t bytes, int flags) {
    if (!lease::concerns(at, bytes)) return next_send(socket, at, bytes, flags);
    return out_of(at, bytes, CALLER,
                  [&](const void* memory, std::size_t n) { return next_send(socket, memory, n, flags); });
}
HPE_DOOR ssize_t sendto(int socket, const void* at, std::size_t bytes, int flags, const sockaddr* to,
                        socklen_t length) {
    if (!lease::concerns(at, bytes)) return next_sendto(socket, at, bytes, flags, to, length);
    return out_of(at, bytes, CALLER,
                  [&](const void* memory, std::size_t n) { return next_sendto(socket, memory, n, flags, to, length); });
}
HPE_DOOR ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    return concerns(message) ? send_one(socket, *message, flags, CALLER) : next_sendmsg(socket, message, flags);
}
HPE_DOOR int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
    if (!any_concerns(messages, count)) return next_sendmmsg(socket, messages, count, flags);
    unsigned sent = 0;
    for (; sent < count; ++sent) {
        const ssize_t bytes = send_one(socket, messages[sent].msg_hdr, flags, CALLER);
        if (bytes < 0) break;
        messages[sent].msg_len = static_cast<unsigned>(bytes);
    }
    return sent == 0 && count != 0 ? -1 : static_cast<int>(sent);
}

HPE_DOOR ssize_t recv(int socket, void* at, std::size_t bytes, int flags) {
    if (!lease::concerns(at, bytes)) return next_recv(socket, at, bytes, flags);
    return into(at, bytes, CALLER, [&](void* memory, std::size_t n) { return next_recv(socket, memory, n, flags); });
}
HPE_DOOR ssize_t __recv_chk(int socket, void* at, std::size_t bytes, std::size_t room, int flags) {
    if (bytes > room || !lease::concerns(at, bytes)) return next_recv_chk(socket, at, bytes, room, flags);
    return into(at, bytes, CALLER, [&](void* memory, std::size_t n) { return next_recv(socket, memory, n, flags); });
}
HPE_DOOR ssize_t recvfrom(int socket, void* at, std::size_t bytes, int flags, sockaddr* from, socklen_t* length) {
    if (!lease::concerns(at, bytes)) return next_recvfrom(socket, at, bytes, flags, from, length);
    return into(at, bytes, CALLER,
                [&](void* memory, std::size_t n) { return next_recvfrom(socket, memory, n, flags, from, length); });
}
HPE_DOOR ssize_t __recvfrom_chk(int socket, void* at, std::size_t bytes, std::size_t room, int flags, sockaddr* from,
                                socklen_t* length) {
    if (bytes > room || !lease::concerns(at, bytes)) {
        return next_recvfrom_chk(socket, at, bytes, room, flags, from, length);
    }
    return into(at, bytes, CALLER,
                [&](void* memory, std::size_t n) { return next_recvfrom(socket, memory, n, flags, from, length); });
}
HPE_DOOR ssize_t recvmsg(int socket, msghdr* message, int flags) {
    return concerns(message) ? receive_one(socket, *message, flags, CALLER) : next_recvmsg(socket, message, flags);
}
HPE_DOOR int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    if (!any_concerns(messages, count)) return next_recvmmsg(socket, messages, count, flags, timeout);
    Deadline deadline(timeout);
    unsigned received = 0;
    while (received < count) {
        const int waits = received != 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
        const ssize_t bytes =
            receive_one(socket, messages[received].msg_hdr, (flags & ~MSG_WAITFORONE) | waits, CALLER);
        if (bytes < 0) break;
        messages[received++].msg_len = static_cast<unsigned>(bytes);
        if (deadline.passed()) break;
    }
    return received == 0 && count != 0 ? -1 : static_cast<int>(received);
}

}  // extern "C"
