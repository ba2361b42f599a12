// SPDX-License-Identifier: MIT
// Requests to the kernel by liburing for memory that kernels use, which it cannot take: without libhpe and in the form
// that copies, memory that nobody may access stands for it. Cases one by one; see io.h. Exits with 77 where the system
// grants no rings.
#include <liburing.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "io.h"

namespace {

constexpr std::size_t kMiB = 1 << 20;

struct Ring {
    io_uring ring{};
    Ring() {
        if (io_uring_queue_init(8, &ring, 0) != 0) std::exit(77);
    }
    ~Ring() { io_uring_queue_exit(&ring); }
    void finish() {
        long results[8] = {};
        const int count = io_uring_submit(&ring);
        say("submitted %d\n", count);
        for (int i = 0; i < count; ++i) {
            io_uring_cqe* done = nullptr;
            if (io_uring_wait_cqe(&ring, &done) != 0) say("no completion\n");
            results[done->user_data] = done->res;
            io_uring_cqe_seen(&ring, done);
        }
        for (int i = 0; i < count; ++i) say("request %d: %ld\n", i, results[i]);
    }
};

// What a request is given in place of `data`.
unsigned char* target(const Memory& data) {
    if (plain) return data.at();
    return static_cast<unsigned char*>(mmap(nullptr, data.bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// Preparing a request clears its number.
template <class Prepare>
void add(Ring& ring, std::uint64_t number, Prepare&& prepare) {
    io_uring_sqe* const one = io_uring_get_sqe(&ring.ring);
    prepare(one);
    one->user_data = number;
}

void ordinary(int, char**) {
    const File file(kMiB);
    const Memory data(kMiB);
    data.change(1);
    static unsigned char one[kMiB], two[kMiB];
    Ring ring;
    const iovec parts[] = {{one, 1000}, {two, 5000}};
    add(ring, 0, [&](io_uring_sqe* r) { io_uring_prep_read(r, file, one, 3000, 7); });
    add(ring, 1, [&](io_uring_sqe* r) { io_uring_prep_read(r, file, two, kMiB, 100); });
    ring.finish();
    add(ring, 0, [&](io_uring_sqe* r) { io_uring_prep_readv(r, file, parts, 2, 50); });
    ring.finish();
    Checksum sum;
    sum.add(one, kMiB);
    sum.add(two, kMiB);
    say("read %llx\n", static_cast<unsigned long long>(sum.value()));
    const iovec buffers[] = {{one, kMiB}, {two, kMiB}};
    say("registered %d\n", io_uring_register_buffers(&ring.ring, buffers, 2));
    add(ring, 0, [&](io_uring_sqe* r) { io_uring_prep_write_fixed(r, file, one, 10000, 0, 0); });
    ring.finish();
    say("data %llx file %llx\n", data.sum(), file.sum());
}

// The CPU has just used the memory, or a kernel has: it makes no difference.
void refused(const char* what, bool touched) {
    const File file(kMiB);
    const Memory data(kMiB);
    data.change(1);
    if (touched) {
        for (std::size_t i = 0; i < kMiB; i += 512) data.at()[i] += 3;
    }
    static unsigned char other[kMiB];
    unsigned char* const at = target(data);
    const iovec parts[] = {{other, 100}, {at + 5, 100}};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = 2;
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::exit(1);
    Ring ring;
    add(ring, 0, [&](io_uring_sqe* r) { io_uring_prep_read(r, file, at + 100, 5000, 0); });
    add(ring, 1, [&](io_uring_sqe* r) { io_uring_prep_write(r, file, at, kMiB, 0); });
    add(ring, 2, [&](io_uring_sqe* r) { io_uring_prep_read(r, file, other, kMiB, 0); });
    add(ring, 3, [&](io_uring_sqe* r) { io_uring_prep_readv(r, file, parts + 1, 1, 0); });
    add(ring, 4, [&](io_uring_sqe* r) { io_uring_prep_send(r, sockets[0], at, 10, 0); });
    add(ring, 5, [&](io_uring_sqe* r) { io_uring_prep_sendmsg(r, sockets[0], &message, 0); });
    ring.finish();
    Checksum sum;
    sum.add(other, kMiB);
    say("%s: read %llx\n", what, static_cast<unsigned long long>(sum.value()));
    const iovec buffers[] = {{other, kMiB}, {at, kMiB}};
    say("registered %d\n", io_uring_register_buffers(&ring.ring, buffers, 2));
    say("registered %d\n", io_uring_register_buffers_tags(&ring.ring, buffers + 1, nullptr, 1));
    data.change(2);
    say("data %llx file %llx\n", data.sum(), file.sum());
    close(sockets[0]);
    close(sockets[1]);
}
void said_on_the_host(int, char**) { refused("host", true); }
void said_on_the_device(int, char**) { refused("device", false); }

// The kernel would read the memory after the request has completed.
void said_without_a_copy(int, char**) {
    const Memory data(kMiB);
    data.change(3);
    for (std::size_t i = 0; i < kMiB; i += 512) data.at()[i] += 3;
    unsigned char* const at = target(data);
    iovec part{at + 5, 100};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const int to_oneself = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (bind(to_oneself, address, size) != 0 || getsockname(to_oneself, address, &size) != 0 ||
        connect(to_oneself, address, size) != 0) {
        std::exit(1);
    }
    Ring first, second;  // a completion may be followed by another
    add(first, 0, [&](io_uring_sqe* r) { io_uring_prep_send_zc(r, to_oneself, at, 1000, 0, 0); });
    first.finish();
    add(second, 0, [&](io_uring_sqe* r) { io_uring_prep_sendmsg_zc(r, to_oneself, &message, 0); });
    second.finish();
    close(to_oneself);
    say("data %llx\n", data.sum());
}

constexpr Case cases[] = {
    {"ordinary", ordinary},
    {"said_on_the_host", said_on_the_host},
    {"said_on_the_device", said_on_the_device},
    {"said_without_a_copy", said_without_a_copy},
};

}  // namespace

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
