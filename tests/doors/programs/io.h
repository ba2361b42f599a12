// SPDX-License-Identifier: MIT
// What the programs of files, streams and sockets share: memory that a call reads or writes and a kernel changes. In
// the plain form it is what cudaMalloc returned, in the copying form a host buffer beside it.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <string>

#include "program.h"

template <int = 0>
__global__ void mix(unsigned char* data, std::size_t bytes, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < bytes) data[i] = static_cast<unsigned char>(data[i] * 5 + key + i / 251);
}

class Memory {
public:
    explicit Memory(std::size_t bytes, bool cleared = true) : bytes_(bytes) {
        CHECK(cudaMalloc(&gpu_, bytes));
        if (cleared) CHECK(cudaMemset(gpu_, 0, bytes));
        CHECK(cudaDeviceSynchronize());
        host_ = gpu_;
        if (plain) return;
        // O_DIRECT wants it aligned, as what cudaMalloc returns is.
        host_ = static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
        std::memset(host_, 0, bytes);
    }
    ~Memory() {
        if (!plain) std::free(host_);
        CHECK(cudaFree(gpu_));
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    unsigned char* at(std::size_t offset = 0) const { return host_ + offset; }
    std::size_t bytes() const { return bytes_; }
    // A kernel changes all of it, and may be under way on return.
    void change(unsigned key) const {
        if (!plain) CHECK(cudaMemcpy(gpu_, host_, bytes_, cudaMemcpyHostToDevice));
        mix<><<<static_cast<unsigned>((bytes_ + 255) / 256), 256>>>(gpu_, bytes_, key);
        CHECK(cudaGetLastError());
        if (!plain) CHECK(cudaMemcpy(host_, gpu_, bytes_, cudaMemcpyDeviceToHost));
    }
    // The device changes all of it, in less time.
    void set(int value) const {
        CHECK(cudaMemset(gpu_, value, bytes_));
        if (!plain) std::memset(host_, value, bytes_);
    }
    // By the device, whatever the host has.
    unsigned long long sum() const { return sum(bytes_); }
    unsigned long long sum(std::size_t bytes) const {
        Checksum sum;
        unsigned char* copy = static_cast<unsigned char*>(std::malloc(bytes_));
        if (!plain) CHECK(cudaMemcpy(gpu_, host_, bytes_, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(copy, gpu_, bytes_, cudaMemcpyDeviceToHost));
        sum.add(copy, bytes);
        std::free(copy);
        return sum.value();
    }

private:
    unsigned char* gpu_ = nullptr;
    unsigned char* host_ = nullptr;
    const std::size_t bytes_;
};

// A file in the current directory, gone from it at once.
class File {
public:
    explicit File(std::size_t bytes = 0, int flags = O_RDWR) {
        char path[] = "io-XXXXXX";
        const int made = mkstemp(path);
        Random random(static_cast<std::uint32_t>(bytes) + 1);
        std::string text(bytes, 0);
        for (char& c : text) c = static_cast<char>(random.next());
        if (made < 0 || write(made, text.data(), bytes) != static_cast<ssize_t>(bytes)) std::exit(98);
        file_ = open(path, flags);
        unlink(path);
        close(made);
    }
    ~File() { close(file_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    operator int() const { return file_; }

    unsigned long long sum() const {
        Checksum sum;
        struct stat status {};
        fstat(file_, &status);
        std::string text(static_cast<std::size_t>(status.st_size), 0);
        if (pread(file_, text.data(), text.size(), 0) != status.st_size) std::exit(97);
        sum.add(text.data(), text.size());
        return sum.value();
    }
    long offset() const { return lseek(file_, 0, SEEK_CUR); }

private:
    int file_;
};

// What a call returned, and errno where it failed.
inline void result(const char* what, long value) {
    const int error = errno;
    say("%s: %ld%s%s\n", what, value, value < 0 ? " " : "", value < 0 ? strerrorname_np(error) : "");
}
