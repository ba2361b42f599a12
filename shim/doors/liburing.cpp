// SPDX-License-Identifier: MIT
// Doors of liburing, which asks the kernel for transfers by memory that both share (io_uring(7)). The kernel reads and
// writes a request's memory whenever it gets to it, past all protections where the pages were accessible once, and no
// door sees the end of it. So memory of an object is refused, with one line: a buffer of it cannot be registered
// (-EFAULT, as for any memory that the kernel cannot pin), and a request for it completes with -EFAULT.
//
// Handled: what submits and registers, by the names below. Left out: a liburing that is linked statically or whose
// functions were looked up by dlsym in itself, the system calls without it, and memory that lies behind a request's own
// structures (the vector of IORING_OP_READV is looked at, buffers provided through a ring are not).
//
// Source: liburing's public ABI; struct io_uring begins as here since 2.0. Threads: a ring belongs to one at a time.
#include <linux/io_uring.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_vectors.h"

using namespace hpe;
using namespace hpe::doors;

namespace {

struct Ring {
    struct Requests {
        unsigned *head, *tail, *mask, *entries, *flags, *dropped, *array;
        io_uring_sqe* all;
        unsigned first, end;  // not submitted yet
        std::size_t bytes;
        void* memory;
        unsigned more[4];
    } requests;
    struct Completions {
        unsigned *head, *tail, *mask, *entries, *flags, *overflow;
        io_uring_cqe* all;
        std::size_t bytes;
        void* memory;
        unsigned more[4];
    } completions;
    unsigned flags;  // IORING_SETUP_
};
static_assert(offsetof(Ring, flags) == 192);

bool refuses(const void* at, std::size_t bytes) noexcept {
    if (!lease::concerns(at, bytes)) return false;
    lease::explain_unseen("io_uring", at, bytes);
    return true;
}
bool refuses(const iovec* parts, std::size_t count) noexcept {
    if (!concerns(parts, count)) return false;
    for (std::size_t i = 0; i < count; ++i) {
        if (refuses(parts[i].iov_base, parts[i].iov_len)) break;
    }
    return true;
}
// Where no program has memory (vm.mmap_min_addr): the kernel finds that out when it serves the request, as it does with
// memory that is not valid on the host. What it finds wrong earlier ends the submission of the requests behind it.
constexpr std::uintptr_t kNowhere = 4096;
const iovec nowhere{reinterpret_cast<void*>(kNowhere), 1};
const msghdr nothing_there{nullptr, 0, const_cast<iovec*>(&nowhere), 1, nullptr, 0, 0};

void look(io_uring_sqe& request) noexcept {
    const auto* const at = reinterpret_cast<const void*>(request.addr);
    switch (request.opcode) {
        case IORING_OP_READ:
        case IORING_OP_WRITE:
        case IORING_OP_SEND:
        case IORING_OP_SEND_ZC:
        case IORING_OP_RECV:
            if (refuses(at, request.len)) request.addr = kNowhere;
            break;
        case IORING_OP_PROVIDE_BUFFERS:  // as many as `fd` says
            if (refuses(at, std::size_t{request.len} * static_cast<unsigned>(request.fd))) request.addr = kNowhere;
            break;
        case IORING_OP_READV:
        case IORING_OP_WRITEV:
            if (!refuses(static_cast<const iovec*>(at), request.len)) break;
            request.addr = reinterpret_cast<std::uintptr_t>(&nowhere);
            request.len = 1;
            break;
        case IORING_OP_SENDMSG:
        case IORING_OP_SENDMSG_ZC:
        case IORING_OP_RECVMSG: {
            const auto* const message = static_cast<const msghdr*>(at);
            if (message == nullptr || !refuses(message->msg_iov, message->msg_iovlen)) break;
            request.addr = reinterpret_cast<std::uintptr_t>(&nothing_there);
            break;
        }
        default: break;  // the fixed forms use what was registered
    }
}

// What the kernel has not been told of yet.
void look(void* ring) noexcept {
    if (!any_objects()) return;
    const auto& given = *static_cast<Ring*>(ring);
    const auto& requests = given.requests;
    const unsigned step = (given.flags & IORING_SETUP_SQE128) != 0 ? 2 : 1;
    for (unsigned i = requests.first; i != requests.end; ++i) look(requests.all[(i & *requests.mask) * step]);
}

constinit Next<int(void*)> next_submit{"io_uring_submit"}, next_get_events{"io_uring_submit_and_get_events"};
constinit Next<int(void*, unsigned)> next_submit_and_wait{"io_uring_submit_and_wait"};
constinit Next<int(void*, void*, unsigned, void*, void*)> next_timeout{"io_uring_submit_and_wait_timeout"},
    next_wait_cqes{"io_uring_wait_cqes"};
constinit Next<int(void*, void*, unsigned, void*, unsigned, void*)> next_min_timeout{
    "io_uring_submit_and_wait_min_timeout"};
constinit Next<int(void*, void*, unsigned, int)> next_registered_wait{"io_uring_submit_and_wait_reg"};
constinit Next<int(void*, void*, void*)> next_wait_cqe{"io_uring_wait_cqe_timeout"};
constinit Next<int(void*, const iovec*, unsigned)> next_buffers{"io_uring_register_buffers"};
constinit Next<int(void*, const iovec*, const void*, unsigned)> next_tags{"io_uring_register_buffers_tags"};
constinit Next<int(void*, unsigned, const iovec*, const void*, unsigned)> next_update{
    "io_uring_register_buffers_update_tag"};

// liburing returns errors as negative numbers.
template <class Function, class... A>
int forward(Next<Function>& next, A... arguments) noexcept {
    return next.exists() ? next(arguments...) : -ENOSYS;
}
template <class Function, class... A>
int submit(Next<Function>& next, void* ring, A... arguments) noexcept {
    look(ring);
    return forward(next, ring, arguments...);
}

}  // namespace

extern "C" {

HPE_DOOR int io_uring_submit(void* ring) { return submit(next_submit, ring); }
HPE_DOOR int io_uring_submit_and_get_events(void* ring) { return submit(next_get_events, ring); }
HPE_DOOR int io_uring_submit_and_wait(void* ring, unsigned count) { return submit(next_submit_and_wait, ring, count); }
HPE_DOOR int io_uring_submit_and_wait_timeout(void* ring, void* completion, unsigned count, void* time, void* mask) {
    return submit(next_timeout, ring, completion, count, time, mask);
}
HPE_DOOR int io_uring_submit_and_wait_min_timeout(void* ring, void* completion, unsigned count, void* time,
                                                  unsigned least, void* mask) {
    return submit(next_min_timeout, ring, completion, count, time, least, mask);
}
HPE_DOOR int io_uring_submit_and_wait_reg(void* ring, void* completion, unsigned count, int wait) {
    return submit(next_registered_wait, ring, completion, count, wait);
}
HPE_DOOR int io_uring_wait_cqes(void* ring, void* completion, unsigned count, void* time, void* mask) {
    return submit(next_wait_cqes, ring, completion, count, time, mask);
}
HPE_DOOR int io_uring_wait_cqe_timeout(void* ring, void* completion, void* time) {
    return submit(next_wait_cqe, ring, completion, time);
}
HPE_DOOR int io_uring_register_buffers(void* ring, const iovec* buffers, unsigned count) {
    return refuses(buffers, count) ? -EFAULT : forward(next_buffers, ring, buffers, count);
}
HPE_DOOR int io_uring_register_buffers_tags(void* ring, const iovec* buffers, const void* tags, unsigned count) {
    return refuses(buffers, count) ? -EFAULT : forward(next_tags, ring, buffers, tags, count);
}
HPE_DOOR int io_uring_register_buffers_update_tag(void* ring, unsigned first, const iovec* buffers, const void* tags,
                                                  unsigned count) {
    return refuses(buffers, count) ? -EFAULT : forward(next_update, ring, first, buffers, tags, count);
}

}  // extern "C"
