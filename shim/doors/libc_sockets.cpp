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
#include <new>

#include "shim/base/guarded_copy.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"
#include "shim/doors/libc_vectors.h"

using namespace hpe;
using namespace hpe::doors;

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
bool may_concern(const void* at, std::size_t bytes) noexcept {
    return lease::may_concern(at, std::min(bytes, kMostBytes));
}
bool concerns(const void* at, std::size_t bytes) noexcept { return lease::concerns(at, std::min(bytes, kMostBytes)); }
// Control messages are small.
std::size_t control_bytes(const msghdr& message) noexcept {
    return message.msg_control == nullptr ? 0 : std::min(message.msg_controllen, lease::Bounce::kRecycled);
}
bool concerns_read(const msghdr& message) noexcept {
    return message.msg_iovlen <= IOV_MAX && (doors::concerns(message.msg_iov, message.msg_iovlen) ||
                                             lease::concerns(message.msg_control, control_bytes(message)));
}
bool concerns(const msghdr* message) noexcept {
    msghdr copy;
    return any_objects() && guarded_copy(&copy, message) && concerns_read(copy);
}
// Up to the first that cannot be read: the kernel goes no further, whatever the count.
bool any_concerns(const mmsghdr* messages, unsigned count) noexcept {
    if (!any_objects()) return false;
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

// A message to be received that concerns us, in memory that the kernel may use. prepare(), the call, finish().
class Incoming {
public:
    explicit Incoming(const msghdr& program) noexcept
        : vector_(program.msg_iov, program.msg_iovlen, VectorToWrite::Bounces::Placed),
          control_bytes_(lease::concerns(program.msg_control, control_bytes(program)) ? control_bytes(program) : 0),
          message_(program) {
        ok_ = vector_.ok() && (control_bytes_ == 0 || control_.take(nullptr, control_bytes_));
    }
    // False: errno says why.
    bool ok() const noexcept { return ok_; }
    bool ours() const noexcept { return room() != 0 || control_bytes_ != 0; }
    // Bytes that prepare() is to be given.
    std::size_t room() const noexcept { return vector_.room(); }
    // Returns the message to receive.
    msghdr& prepare(std::byte* room, int flags, const void* caller) noexcept {
        vector_.place(room);
        // TCP then drops the bytes, and the memory stays as it is.
        if ((flags & MSG_TRUNC) != 0) vector_.load(caller);
        message_.msg_iov = vector_.parts();
        message_.msg_iovlen = static_cast<std::size_t>(vector_.count());
        if (control_bytes_ != 0) {
            // The kernel leaves gaps between control messages.
            lease::load(control_.memory(), message_.msg_control, control_bytes_, caller);
            message_.msg_control = control_.memory();
            message_.msg_controllen = control_bytes_;
        }
        return message_;
    }
    // `received` is the message as the call has left it, of so many bytes.
    void finish(msghdr& program, const msghdr& received, std::size_t bytes, const void* caller) noexcept {
        if (control_bytes_ != 0) {
            lease::store(program.msg_control, control_.memory(), received.msg_controllen, caller);
        }
        program.msg_namelen = received.msg_namelen;
        program.msg_controllen = received.msg_controllen;
        program.msg_flags = received.msg_flags;
        vector_.store(bytes, caller);
    }

private:
    VectorToWrite vector_;
    const std::size_t control_bytes_;
    lease::Bounce control_;
    msghdr message_;
    bool ok_ = false;
};

ssize_t receive_one(int socket, msghdr* message, int flags, const void* caller) {
    if (!concerns(message)) return next_recvmsg(socket, message, flags);
    Incoming incoming(*message);
    lease::Bounce room;
    if (!incoming.ok() || !room.take(nullptr, incoming.room())) return -1;
    msghdr& other = incoming.prepare(room.memory(), flags, caller);
    const ssize_t got =
        holding(incoming, [&] { return holding(room, [&] { return next_recvmsg(socket, &other, flags); }); });
    if (got >= 0) incoming.finish(*message, other, static_cast<std::size_t>(got), caller);
    return got;
}

// Messages to be received by one call, which keeps an error that ends it for the next one.
class Several {
public:
    // Up to the first that cannot be read.
    Several(mmsghdr* program, unsigned count, int flags, const void* caller) noexcept : program_(program) {
        if (!memory_.take(nullptr, count * (sizeof(mmsghdr) + sizeof(Incoming)))) return;
        incoming_ = reinterpret_cast<Incoming*>(memory_.memory());
        messages_ = reinterpret_cast<mmsghdr*>(incoming_ + count);
        std::size_t bytes = 0;
        for (; count_ < count && guarded_copy(&messages_[count_], &program[count_]); ++count_) {
            auto& message = messages_[count_].msg_hdr;
            // One that does not concern us is received where it is.
            auto* const incoming = new (incoming_ + count_) Incoming(concerns_read(message) ? message : msghdr{});
            bytes += incoming->room();
            if (incoming->ok()) continue;
            incoming->~Incoming();
            break;
        }
        if (!room_.take(nullptr, bytes)) return;
        auto* at = room_.memory();
        for (unsigned i = 0; i < count_; ++i) {
            auto& message = messages_[i].msg_hdr;
            if (incoming_[i].ours()) message = incoming_[i].prepare(at, flags, caller);
            at += incoming_[i].room();
        }
        ok_ = count_ != 0;
    }
    ~Several() {
        for (unsigned i = 0; i < count_; ++i) incoming_[i].~Incoming();
    }
    Several(const Several&) = delete;
    Several& operator=(const Several&) = delete;
    bool ok() const noexcept { return ok_; }
    mmsghdr* messages() noexcept { return messages_; }
    unsigned count() const noexcept { return count_; }
    void finish(unsigned received, const void* caller) noexcept {
        for (unsigned i = 0; i < received; ++i) {
            const auto bytes = messages_[i].msg_len;
            incoming_[i].finish(program_[i].msg_hdr, messages_[i].msg_hdr, bytes, caller);
            program_[i].msg_len = bytes;
        }
    }

private:
    mmsghdr* const program_;
    lease::Bounce memory_, room_;
    Incoming* incoming_ = nullptr;
    mmsghdr* messages_ = nullptr;
    unsigned count_ = 0;
    bool ok_ = false;
};

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
    iovec part{at, std::min(bytes, kMostBytes)};
    msghdr message{};
    message.msg_name = from;
    message.msg_namelen = from != nullptr && length != nullptr ? *length : 0;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t got = receive_one(socket, &message, flags, caller);
    if (got >= 0 && from != nullptr && length != nullptr) *length = message.msg_namelen;
    return got;
}

// Apart from their doors, which then save no registers for calls that are none of libhpe's business.
[[gnu::noinline]] ssize_t send_on(int socket, const void* at, std::size_t bytes, int flags, const void* caller) {
    if (!concerns(at, bytes)) return next_send(socket, at, bytes, flags);
    return out_of(
        at, bytes, caller, [&](const void* memory, std::size_t n) { return next_send(socket, memory, n, flags); },
        sent_as_message(socket, flags));
}

[[gnu::noinline]] ssize_t receive(int socket, void* at, std::size_t bytes, int flags, const void* caller) {
    if (!concerns(at, bytes)) return next_recv(socket, at, bytes, flags);
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

// At most so many at once: the kernel stops at the first that does not come, libhpe prepares all of them.
[[gnu::noinline]] int receive_several(int socket, mmsghdr* messages, unsigned count, int flags, timespec* timeout,
                                      const void* caller) {
    timespec time{};
    timespec* const rest = timeout != nullptr && guarded_copy(&time, timeout) ? &time : timeout;
    Several several(messages, std::min(count, static_cast<unsigned>(IOV_MAX)), flags, caller);
    if (!several.ok()) return -1;
    const int received =
        holding(several, [&] { return next_recvmmsg(socket, several.messages(), several.count(), flags, rest); });
    if (received > 0) several.finish(static_cast<unsigned>(received), caller);
    if (rest == &time && received > 0) *timeout = time;
    return received;
}

}  // namespace

extern "C" {

HPE_DOOR ssize_t send(int socket, const void* at, std::size_t bytes, int flags) {
    if (!may_concern(at, bytes)) return next_send(socket, at, bytes, flags);
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
    if (!may_concern(at, bytes)) return next_recv(socket, at, bytes, flags);
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
    if (!any_concerns(messages, count)) return next_recvmmsg(socket, messages, count, flags, timeout);
    return receive_several(socket, messages, count, flags, timeout, CALLER);
}

}  // extern "C"
