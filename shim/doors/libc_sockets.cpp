// SPDX-License-Identifier: MIT
// Doors of sockets. A call may wait for as long as the other side wants: it is given bounce memory or the view, and
// nothing of an object is held meanwhile.
//
// Handled: send, sendto, sendmsg, sendmmsg, recv, recvfrom, recvmsg, recvmmsg and the fortified forms: the bytes of the
// message, and control messages. Addresses and the structures themselves are taken where they lie. With MSG_ZEROCOPY
// the kernel reads the view later: the bytes are as the CPU last saw them, unless the device changes them meanwhile.
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "shim/coherence/lease.h"
#include "shim/doors/fault.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"
#include "shim/doors/libc_vectors.h"

using hpe::guarded_copy;
using hpe::doors::holding;
using hpe::doors::into;
using hpe::doors::Next;
using hpe::doors::out_of;
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

// The kernel looks at no more of one range, whatever its length.
bool concerns(const void* at, std::size_t bytes) noexcept {
    return lease::concerns(at, std::min(bytes, hpe::doors::kMostBytes));
}
// Control messages are small.
std::size_t control_bytes(const msghdr& message) noexcept {
    return message.msg_control == nullptr ? 0 : std::min(message.msg_controllen, lease::Bounce::kRecycled);
}
bool concerns_read(const msghdr& message) noexcept {
    return message.msg_iovlen <= IOV_MAX && (hpe::doors::concerns(message.msg_iov, message.msg_iovlen) ||
                                             lease::concerns(message.msg_control, control_bytes(message)));
}
bool concerns(const msghdr* message) noexcept {
    msghdr copy;
    return hpe::doors::any_objects() && guarded_copy(&copy, message) && concerns_read(copy);
}
// Up to the first that cannot be read: the kernel goes no further, whatever the count.
bool any_concerns(const mmsghdr* messages, unsigned count) noexcept {
    if (!hpe::doors::any_objects()) return false;
    msghdr copy;
    for (unsigned i = 0; i < count && guarded_copy(&copy, &messages[i].msg_hdr); ++i) {
        if (concerns_read(copy)) return true;
    }
    return false;
}

// A message of the program's, which may be one that does not concern us.
ssize_t send_one(int socket, const msghdr* message, int flags, const void* caller) {
    if (!concerns(message)) return next_sendmsg(socket, message, flags);
    msghdr other = *message;
    VectorToRead vector(other.msg_iov, other.msg_iovlen, caller);
    if (!vector.ok()) return -1;
    other.msg_iov = vector.parts();
    other.msg_iovlen = static_cast<std::size_t>(vector.count());
    // More of them the kernel refuses (optmem_max).
    if (other.msg_controllen > lease::Bounce::kRecycled || !lease::concerns(other.msg_control, other.msg_controllen)) {
        return holding(vector, [&] { return next_sendmsg(socket, &other, flags); });
    }
    lease::ToRead control(other.msg_control, other.msg_controllen, caller);
    if (control.memory() == nullptr || control.bytes() != other.msg_controllen) {
        errno = EFAULT;
        return -1;
    }
    other.msg_control = const_cast<void*>(control.memory());
    return holding(vector, [&] { return holding(control, [&] { return next_sendmsg(socket, &other, flags); }); });
}

ssize_t receive_one(int socket, msghdr* message, int flags, const void* caller) {
    if (!concerns(message)) return next_recvmsg(socket, message, flags);
    msghdr other = *message;
    VectorToWrite vector(other.msg_iov, other.msg_iovlen);
    if (!vector.ok()) return -1;
    // TCP then drops the bytes, and the memory stays as it is.
    if ((flags & MSG_TRUNC) != 0) vector.load(caller);
    other.msg_iov = vector.parts();
    other.msg_iovlen = static_cast<std::size_t>(vector.count());
    lease::Bounce control;
    const bool controlled = lease::concerns(other.msg_control, control_bytes(other));
    if (controlled) {
        if (!control.take(nullptr, control_bytes(other))) return -1;
        other.msg_controllen = control_bytes(other);
        // The kernel leaves gaps between the messages.
        lease::load(control.memory(), other.msg_control, other.msg_controllen, caller);
        other.msg_control = control.memory();
    }
    const ssize_t got =
        holding(vector, [&] { return holding(control, [&] { return next_recvmsg(socket, &other, flags); }); });
    if (got >= 0 && controlled) lease::store(message->msg_control, control.memory(), other.msg_controllen, caller);
    if (got >= 0) {
        message->msg_namelen = other.msg_namelen;
        message->msg_controllen = other.msg_controllen;
        message->msg_flags = other.msg_flags;
    }
    if (got > 0) vector.store(static_cast<std::size_t>(got), caller);
    return got;
}

// One range as a message.
auto sent_as_message(int socket, int flags, const sockaddr* to = nullptr, socklen_t length = 0) {
    return [=](iovec* parts, int count) {
        msghdr message{};
        message.msg_name = const_cast<sockaddr*>(to);
        message.msg_namelen = length;
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<std::size_t>(count);
        return next_sendmsg(socket, &message, flags);
    };
}
auto received_as_message(int socket, int flags, sockaddr* from = nullptr, socklen_t* length = nullptr) {
    return [=](iovec* parts, int count) {
        msghdr message{};
        message.msg_name = from;
        message.msg_namelen = from != nullptr && length != nullptr ? *length : 0;
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<std::size_t>(count);
        const ssize_t got = next_recvmsg(socket, &message, flags);
        if (got >= 0 && from != nullptr && length != nullptr) *length = message.msg_namelen;
        return got;
    };
}

ssize_t receive_truncated(int socket, void* at, std::size_t bytes, int flags, sockaddr* from, socklen_t* length,
                          const void* caller) {
    iovec part{at, std::min(bytes, hpe::doors::kMostBytes)};
    msghdr message{};
    message.msg_name = from;
    message.msg_namelen = from != nullptr && length != nullptr ? *length : 0;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = receive_one(socket, &message, flags, caller);
    if (got >= 0 && from != nullptr && length != nullptr) *length = message.msg_namelen;
    return got;
}

// Apart from its door, which then saves few registers for calls that are none of libhpe's business.
[[gnu::noinline]] ssize_t send_on(int socket, const void* at, std::size_t bytes, int flags, const void* caller) {
    return out_of(
        at, bytes, caller, [&](const void* memory, std::size_t n) { return next_send(socket, memory, n, flags); },
        sent_as_message(socket, flags));
}

ssize_t receive(int socket, void* at, std::size_t bytes, int flags, const void* caller) {
    if ((flags & MSG_TRUNC) != 0) return receive_truncated(socket, at, bytes, flags, nullptr, nullptr, caller);
    return into(
        at, bytes, caller, [&](void* memory, std::size_t n) { return next_recv(socket, memory, n, flags); },
        received_as_message(socket, flags));
}
ssize_t receive_from(int socket, void* at, std::size_t bytes, int flags, sockaddr* from, socklen_t* length,
                     const void* caller) {
    if ((flags & MSG_TRUNC) != 0) return receive_truncated(socket, at, bytes, flags, from, length, caller);
    return into(
        at, bytes, caller,
        [&](void* memory, std::size_t n) { return next_recvfrom(socket, memory, n, flags, from, length); },
        received_as_message(socket, flags, from, length));
}

bool valid(const timespec* timeout) noexcept {
    timespec time{};
    return timeout == nullptr ||
           (guarded_copy(&time, timeout) && time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
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
    if (!concerns(at, bytes)) return next_send(socket, at, bytes, flags);
    return send_on(socket, at, bytes, flags, CALLER);
}
HPE_DOOR ssize_t sendto(int socket, const void* at, std::size_t bytes, int flags, const sockaddr* to,
                        socklen_t length) {
    if (!concerns(at, bytes)) return next_sendto(socket, at, bytes, flags, to, length);
    return out_of(
        at, bytes, CALLER,
        [&](const void* memory, std::size_t n) { return next_sendto(socket, memory, n, flags, to, length); },
        sent_as_message(socket, flags, to, length));
}
HPE_DOOR ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    return send_one(socket, message, flags, CALLER);
}
HPE_DOOR int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
    if (!any_concerns(messages, count)) return next_sendmmsg(socket, messages, count, flags);
    count = std::min(count, static_cast<unsigned>(IOV_MAX));  // as the kernel does
    unsigned sent = 0;
    for (; sent < count; ++sent) {
        const ssize_t bytes = send_one(socket, &messages[sent].msg_hdr, flags, CALLER);
        if (bytes < 0) break;
        messages[sent].msg_len = static_cast<unsigned>(bytes);
    }
    return sent == 0 && count != 0 ? -1 : static_cast<int>(sent);
}

HPE_DOOR ssize_t recv(int socket, void* at, std::size_t bytes, int flags) {
    if (!concerns(at, bytes)) return next_recv(socket, at, bytes, flags);
    return receive(socket, at, bytes, flags, CALLER);
}
HPE_DOOR ssize_t __recv_chk(int socket, void* at, std::size_t bytes, std::size_t room, int flags) {
    if (bytes > room || !concerns(at, bytes)) return next_recv_chk(socket, at, bytes, room, flags);
    return receive(socket, at, bytes, flags, CALLER);
}
HPE_DOOR ssize_t recvfrom(int socket, void* at, std::size_t bytes, int flags, sockaddr* from, socklen_t* length) {
    if (!concerns(at, bytes)) return next_recvfrom(socket, at, bytes, flags, from, length);
    return receive_from(socket, at, bytes, flags, from, length, CALLER);
}
HPE_DOOR ssize_t __recvfrom_chk(int socket, void* at, std::size_t bytes, std::size_t room, int flags, sockaddr* from,
                                socklen_t* length) {
    if (bytes > room || !concerns(at, bytes)) {
        return next_recvfrom_chk(socket, at, bytes, room, flags, from, length);
    }
    return receive_from(socket, at, bytes, flags, from, length, CALLER);
}
HPE_DOOR ssize_t recvmsg(int socket, msghdr* message, int flags) { return receive_one(socket, message, flags, CALLER); }
HPE_DOOR int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    // The kernel says what is wrong with the time.
    if (!any_concerns(messages, count) || !valid(timeout)) {
        return next_recvmmsg(socket, messages, count, flags, timeout);
    }
    Deadline deadline(timeout);
    unsigned received = 0;
    while (received < count) {
        const int waits = received != 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
        const ssize_t bytes =
            receive_one(socket, &messages[received].msg_hdr, (flags & ~MSG_WAITFORONE) | waits, CALLER);
        if (bytes < 0) break;
        messages[received++].msg_len = static_cast<unsigned>(bytes);
        if (deadline.passed()) break;
    }
    return received == 0 && count != 0 ? -1 : static_cast<int>(received);
}

}  // extern "C"
