// SPDX-License-Identifier: MIT
// Between a file, in the page cache if not said otherwise, and device memory, in GB/s: from the first call until a
// kernel has used the bytes, or until the last write returned.
//
//   files WORK WAY MIB
//   WORK  read, write: one call for all; cold: read what is not in the page cache. fread, fwrite: pieces of 64 KiB
//   WAY   usual   a host buffer and cudaMemcpy
//         pinned  two pinned buffers of 8 MiB by hand, the next piece while the last one moves; not with streams
//         direct  the device pointer, under libhpe
//         host    the call alone, from or to host memory
//
// Prints one figure a round. Exits 1 if the bytes are wrong. The file is made in the current folder, and removed.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.h"

namespace {

constexpr std::size_t kPiece = 64 << 10, kBlock = std::size_t{8} << 20;

__global__ void sum(const unsigned* data, std::size_t n, unsigned long long* total) {
    unsigned long long mine = 0;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        mine += data[i];
    }
    atomicAdd(total, mine);
}
__global__ void fill(unsigned* data, std::size_t n, unsigned key) {
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
         i += std::size_t{gridDim.x} * blockDim.x) {
        data[i] = static_cast<unsigned>(i) * 7 + key;
    }
}

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

struct Bench {
    std::string work, way;
    std::size_t bytes;
    int file;
    FILE* stream;
    char *host, *device, *pinned[2];
    unsigned long long* total;
    cudaStream_t streams[2];

    bool is(const char* name) const { return way == name; }

    void in(char* to) const {
        if (work != "fread") {
            if (pread(file, to, bytes, 0) != static_cast<ssize_t>(bytes)) fail("pread");
            return;
        }
        std::rewind(stream);
        for (std::size_t at = 0; at < bytes; at += kPiece) {
            if (std::fread(to + at, 1, kPiece, stream) != kPiece) fail("fread");
        }
    }
    void out(const char* from) const {
        if (work == "write") {
            if (pwrite(file, from, bytes, 0) != static_cast<ssize_t>(bytes)) fail("pwrite");
            return;
        }
        std::rewind(stream);
        for (std::size_t at = 0; at < bytes; at += kPiece) {
            if (std::fwrite(from + at, 1, kPiece, stream) != kPiece) fail("fwrite");
        }
        std::fflush(stream);
    }
    void in_blocks() const {
        for (std::size_t at = 0, k = 0; at < bytes; at += kBlock, ++k) {
            CHECK(cudaStreamSynchronize(streams[k % 2]));
            if (pread(file, pinned[k % 2], kBlock, static_cast<off_t>(at)) != static_cast<ssize_t>(kBlock))
                fail("pread");
            CHECK(cudaMemcpyAsync(device + at, pinned[k % 2], kBlock, cudaMemcpyHostToDevice, streams[k % 2]));
        }
        CHECK(cudaDeviceSynchronize());
    }
    void out_of_blocks() const {
        const auto fetch = [&](std::size_t at, std::size_t k) {
            if (at < bytes)
                CHECK(cudaMemcpyAsync(pinned[k % 2], device + at, kBlock, cudaMemcpyDeviceToHost, streams[k % 2]));
        };
        fetch(0, 0);
        for (std::size_t at = 0, k = 0; at < bytes; at += kBlock, ++k) {
            fetch(at + kBlock, k + 1);
            CHECK(cudaStreamSynchronize(streams[k % 2]));
            if (pwrite(file, pinned[k % 2], kBlock, static_cast<off_t>(at)) != static_cast<ssize_t>(kBlock))
                fail("pwrite");
        }
    }

    double read_round() const {
        CHECK(cudaMemset(total, 0, sizeof *total));
        CHECK(cudaDeviceSynchronize());
        if (work == "cold" && (fsync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0))
            fail("fadvise");
        const auto begin = std::chrono::steady_clock::now();
        if (is("pinned")) {
            in_blocks();
        } else {
            in(is("direct") ? device : host);
            if (is("usual")) CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
        }
        if (!is("host")) {
            sum<<<264, 512>>>(reinterpret_cast<const unsigned*>(device), bytes / 4, total);
            CHECK(cudaDeviceSynchronize());
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    double write_round(unsigned key) const {
        fill<<<264, 512>>>(reinterpret_cast<unsigned*>(device), bytes / 4, key);
        CHECK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        if (is("pinned")) {
            out_of_blocks();
        } else {
            if (is("usual")) CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
            out(is("direct") ? device : host);
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    Bench b{argv[1], argv[2], std::strtoull(argv[3], nullptr, 10) << 20, -1, nullptr, nullptr, nullptr, {},
            nullptr, {}};
    char path[] = "files-XXXXXX";
    b.file = mkstemp(path);
    unlink(path);
    b.stream = fdopen(dup(b.file), "r+");
    b.host = static_cast<char*>(std::malloc(b.bytes));
    auto* const words = reinterpret_cast<unsigned*>(b.host);
    unsigned long long wanted = 0;
    for (std::size_t i = 0; i < b.bytes / 4; ++i) wanted += words[i] = static_cast<unsigned>(i) * 2654435761u;
    if (pwrite(b.file, b.host, b.bytes, 0) != static_cast<ssize_t>(b.bytes)) fail("pwrite");
    CHECK(cudaMalloc(&b.device, b.bytes));
    CHECK(cudaMalloc(&b.total, sizeof *b.total));
    for (int i = 0; i < 2; ++i) {
        CHECK(cudaMallocHost(&b.pinned[i], kBlock));
        CHECK(cudaStreamCreate(&b.streams[i]));
    }
    const bool reads = b.work == "read" || b.work == "fread" || b.work == "cold";
    constexpr int kRounds = 6;
    for (int round = 0; round < kRounds; ++round) {
        const double seconds = reads ? b.read_round() : b.write_round(static_cast<unsigned>(round));
        // The first makes what is recycled afterwards.
        if (round != 0) std::printf("%.3f\n", static_cast<double>(b.bytes) / seconds / 1e9);
        if (b.is("host")) continue;
        unsigned long long got = 0;
        if (reads) {
            CHECK(cudaMemcpy(&got, b.total, sizeof got, cudaMemcpyDeviceToHost));
        } else {
            if (pread(b.file, b.host, b.bytes, 0) != static_cast<ssize_t>(b.bytes)) fail("pread");
            wanted = 0;
            for (std::size_t i = 0; i < b.bytes / 4; ++i) {
                got += words[i];
                wanted += static_cast<unsigned>(i) * 7 + static_cast<unsigned>(round);
            }
        }
        if (got != wanted) return 1;
    }
    return 0;
}
