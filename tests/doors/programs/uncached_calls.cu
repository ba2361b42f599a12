// SPDX-License-Identifier: MIT
// Calls of libc that are given device memory which was exported, so that others may write it at any time.
#include <aio.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <immintrin.h>
#include <atomic>
#include <csignal>
#include <vector>

#include "exported.h"

// Calls of libc, large and small, between this memory, an object and ordinary memory.
static void calls(int, char**) {
    constexpr std::size_t large = 3 << 20, part = 2 << 20, odd = 4097 + 3;
    Data data = exported(), object(many);
    auto* const bytes = reinterpret_cast<char*>(data.gpu);
    auto* const shared_bytes = reinterpret_cast<char*>(object.gpu);
    std::vector<char> host(large), back(large);
    for (std::size_t i = 0; i < large; ++i) host[i] = static_cast<char>(i * 7 + i / 256);
    char name[] = "/tmp/uncached.XXXXXX";
    const int file = mkstemp(name);
    unlink(name);
    const auto done = [](long long got) { say("%lld\n", got); };
    if (plain) {
        std::memcpy(bytes + 5, host.data(), part);
        std::memcpy(shared_bytes, bytes + 100, part);
        std::memcpy(bytes + part, shared_bytes + 50, part / 2);
        std::memset(bytes + 3 * part / 2, 3, part / 4);
        std::memcpy(back.data(), bytes, large);
        done(write(file, bytes + 1, odd));
        const iovec mixed[] = {
            {host.data(), 5}, {bytes + 9000, 100}, {shared_bytes + 7, 90}, {bytes + 50000, large / 2}};
        done(writev(file, mixed, 4));
        done(pwrite(file, bytes, large / 4, 8 << 20));
        done(pread(file, bytes + 20, 3000, 100));
        done(pread(file, bytes + large / 2, large / 4, 10));
        const iovec into[] = {{bytes + 11000, 70}, {back.data(), 50}, {bytes + 12000, 5000}};
        done(preadv(file, into, 3, 40));
        FILE* const stream = fdopen(dup(file), "r+");
        std::rewind(stream);
        done(std::fread(bytes + 777, 1, 20000, stream));
        std::fclose(stream);
        int ends[2];
        if (pipe(ends) != 0) say("no pipe\n");
        done(write(ends[1], bytes + 3, 2000));
        done(read(ends[0], bytes + 30000, 2000));
        aiocb request = {};
        request.aio_fildes = file;
        request.aio_buf = bytes + 5000;
        request.aio_nbytes = 3000;
        request.aio_offset = 123;
        const aiocb* const requests[] = {&request};
        if (aio_write(&request) != 0 || aio_suspend(requests, 1, nullptr) != 0) say("no aio\n");
        done(aio_return(&request));
        int sockets[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) say("no sockets\n");
        iovec parts[] = {{bytes + 40000, 700}, {host.data(), 9}, {bytes + 50000, 800}};
        msghdr message = {};
        message.msg_iov = parts;
        message.msg_iovlen = 3;
        done(sendmsg(sockets[1], &message, 0));
        for (auto& part : parts) part.iov_base = static_cast<char*>(part.iov_base) + (part.iov_len == 9 ? 0 : 4000);
        done(recvmsg(sockets[0], &message, MSG_WAITALL));
        done(pread(file, bytes + 90000, 3000, 123));
    } else {
        const auto put = [&](char* to, const char* from, std::size_t count) {
            CHECK(cudaMemcpy(to, from, count, cudaMemcpyDefault));
        };
        std::vector<char> all(large), file_bytes;
        const auto load_all = [&] { put(all.data(), bytes, large); };
        const auto append = [&](const char* from, std::size_t count) {
            file_bytes.insert(file_bytes.end(), from, from + count);
        };
        put(bytes + 5, host.data(), part);
        put(shared_bytes, bytes + 100, part);
        put(bytes + part, shared_bytes + 50, part / 2);
        CHECK(cudaMemset(bytes + 3 * part / 2, 3, part / 4));
        put(back.data(), bytes, large);
        load_all();
        append(all.data() + 1, odd);
        done(odd);
        append(host.data(), 5);
        append(all.data() + 9000, 100);
        std::vector<char> some(90);
        put(some.data(), shared_bytes + 7, 90);
        append(some.data(), 90);
        append(all.data() + 50000, large / 2);
        done(195 + large / 2);
        done(large / 4);
        put(bytes + 20, file_bytes.data() + 100, 3000);
        done(3000);
        put(bytes + large / 2, file_bytes.data() + 10, large / 4);
        done(large / 4);
        put(bytes + 11000, file_bytes.data() + 40, 70);
        std::memcpy(back.data(), file_bytes.data() + 110, 50);
        put(bytes + 12000, file_bytes.data() + 160, 5000);
        done(5120);
        put(bytes + 777, file_bytes.data(), 20000);
        done(20000);
        put(bytes + 30000, bytes + 3, 2000);
        done(2000);
        done(2000);
        put(bytes + 90000, bytes + 5000, 3000);
        done(3000);
        std::vector<char> parts(1509);
        put(parts.data(), bytes + 40000, 700);
        std::memcpy(&parts[700], host.data(), 9);
        put(&parts[709], bytes + 50000, 800);
        put(bytes + 44000, parts.data(), 700);
        put(bytes + 54000, &parts[709], 800);
        done(1509);
        done(1509);
        done(3000);
    }
    close(file);
    Checksum sum;
    sum.add(back.data(), large);
    for (const char* memory : {bytes, shared_bytes}) {
        CHECK(cudaMemcpy(back.data(), memory, large, cudaMemcpyDefault));
        sum.add(back.data(), large);
    }
    say("checksum %016llx\n", static_cast<unsigned long long>(sum.value()));
}

// A write that waits for its reader goes on with the bytes that it began with, where the memory is exported meanwhile
// and other memory is used.
static void write_under_way(int, char**) {
    constexpr std::size_t large = 8u << 20;
    std::vector<unsigned char> sent(large, 0x11), got(large);
    auto* const memory = reinterpret_cast<unsigned char*>(Data::allocated(large / 4));
    CHECK(cudaMemset(memory, 0x11, large));
    unsigned wrong = load(reinterpret_cast<unsigned*>(memory)) != 0x11111111;
    int ends[2], waiting = 0;
    if (pipe(ends) != 0) say("no pipe\n");
    auto send = [&] {
        const unsigned char* const from = plain ? memory : sent.data();
        for (std::size_t at = 0; at < large;) at += static_cast<std::size_t>(write(ends[1], from + at, large - at));
    };
    const pthread_t thread = start(send);
    while (waiting == 0) ioctl(ends[0], FIONREAD, &waiting);
    export_to_others(memory);
    Data other(large / 4);
    wrong += other.work(1);
    for (std::size_t at = 0; at < large;) at += static_cast<std::size_t>(read(ends[0], got.data() + at, large - at));
    pthread_join(thread, nullptr);
    for (const auto byte : got) wrong += byte != 0x11;
    say("%u wrong\n", wrong);
}

// Calls of libc on such memory while signals interrupt them, whose handler accesses it, too.
static void calls_interrupted(int, char**) {
    Data data = exported();
    store_in_handler(data);
    int ends[2];
    if (pipe(ends) != 0) say("no pipe\n");
    std::atomic<bool> ready{false}, over{false};
    store(data.gpu + 5, 7u);
    auto work = [&] {
        CHECK(cudaDeviceSynchronize());  // this thread has called CUDA, whose calls no handler may interrupt
        ready = true;
        while (!over) {
            if (!plain) continue;
            unsigned got = 0;
            if (write(ends[1], data.gpu + 5, 4) != 4 || read(ends[0], data.gpu + 6, 4) != 4) say("no bytes\n");
            if (write(ends[1], data.gpu + 6, 4) != 4 || read(ends[0], &got, 4) != 4 || got != 7) say("%u\n", got);
        }
    };
    const pthread_t thread = start(work);
    while (!ready) sched_yield();
    for (int round = 0; round < 1000; ++round) {
        const int before = times_handled;
        for (int wait = round * 97 % 5000; wait > 0; --wait) _mm_pause();  // anywhere in a call
        pthread_kill(thread, SIGUSR1);
        while (times_handled == before) sched_yield();
    }
    over = true;
    pthread_join(thread, nullptr);
    say("times_handled %d\n", times_handled.load());
}

int main(int argc, char** argv) {
    static const Case cases[] = {
        {"calls", calls}, {"calls_interrupted", calls_interrupted}, {"write_under_way", write_under_way}};
    return run_case(cases, argc, argv);
}
