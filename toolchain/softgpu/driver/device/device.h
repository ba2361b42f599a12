// SPDX-License-Identifier: MIT
// One device (CUDA Driver API, "Device Management"): its memory, which is a sparse memfd seen through a hidden view,
// its link to the host, its limits. What else is told of it: device_queries.cpp.
//
// Sizes in bytes. A device lives as long as the process. Threads: any. Errors: false.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "toolchain/softgpu/driver/base/abi.h"
#include "toolchain/softgpu/driver/base/options.h"

namespace hpe::soft {

constexpr std::uint64_t host_page = 4096, page_2m = 2ull << 20;
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// The physical memory of a device. Offsets are of the memfd; it is larger than the device, so that fragmentation of
// offsets never looks like a full device: real ones map scattered pages, and bytes in use are what is limited.
class DeviceMemory {
public:
    explicit DeviceMemory(std::uint64_t capacity) : capacity_(capacity) {}

    bool open();  // maps the view; false: the host has no memory for it
    // `bytes` is a multiple of 2 MiB. False: out of memory.
    bool allocate(std::uint64_t bytes, std::uint64_t& offset);
    // Gives the pages back to the host.
    void release(std::uint64_t offset, std::uint64_t bytes);

    std::byte* view(std::uint64_t offset) const { return view_ + offset; }
    std::uint64_t capacity() const { return capacity_; }
    std::uint64_t used() const;
    int file() const { return fd_; }  // where the bytes are, at their offsets
    std::uint64_t file_bytes() const { return capacity_ * 4; }

private:
    mutable std::mutex mutex_;
    std::uint64_t capacity_, used_ = 0;
    int fd_ = -1;
    std::byte* view_ = nullptr;
    std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes
};

// The bus between host and device: full duplex, each direction one transfer at a time.
class Link {
public:
    enum Direction { ToDevice, ToHost };
    Link(std::uint64_t latency_us) : latency_(latency_us) {}
    // Called when the bytes have been moved; returns when the real link would have been done with a transfer that was
    // asked for at `start`.
    void finish(Direction direction, std::uint64_t bytes, std::uint64_t bytes_per_second,
                std::chrono::steady_clock::time_point start);

private:
    std::mutex mutex_;
    std::chrono::microseconds latency_;
    std::chrono::steady_clock::time_point free_at_[2]{};
};

class Context;
struct MemoryPool;

class Device {
public:
    Device(int index, const Options& options) : ordinal(index), memory(options.memory), link(options.latency) {}

    const int ordinal;
    DeviceMemory memory;
    Link link;
    Context* primary = nullptr;                      // made once, kept for the life of the process
    std::shared_ptr<MemoryPool> default_pool, pool;  // pool: the current one
    // A context with a sticky error has ended: as CUDA's manual says, the process cannot use the device again.
    std::atomic<CUresult> broken{CUDA_SUCCESS};
};

// Limits that launches and attributes agree on; those of the compute capability are in Options.
constexpr unsigned max_threads_per_block = 1024;
constexpr unsigned max_block_dim[3] = {1024, 1024, 64};
constexpr unsigned max_grid_dim[3] = {2147483647, 65535, 65535};
constexpr unsigned shared_per_block = 48 << 10;
constexpr unsigned registers_per_block = 65536;
constexpr unsigned multiprocessors = 16;
constexpr int driver_version = 13000;

}  // namespace hpe::soft
