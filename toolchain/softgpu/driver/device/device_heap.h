// SPDX-License-Identifier: MIT
// The heap from which kernels of one context take memory with malloc and new (CUDA C++ Programming Guide, "Dynamic
// Global Memory Allocation and Operations"). It is made when a kernel first asks for some, as large as
// CU_LIMIT_MALLOC_HEAP_SIZE then says, and lives until the context ends.
//
// Addresses and sizes in bytes. The memory is its context's. Threads: any worker that runs kernels. Errors: 0 and
// false.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace hpe::soft {

class DeviceHeap {
public:
    static constexpr std::uint64_t grain = 16;  // the alignment that CUDA promises
    struct Room {
        std::uint64_t address = 0, size = 0;  // size: a multiple of the grain; address 0: there is no memory
    };
    // `make` is asked for the heap's memory when kernels want some for the first time. 0: none left.
    std::uint64_t allocate(std::uint64_t bytes, const std::function<Room()>& make);
    bool release(std::uint64_t address);  // false: not from here
    bool made() const;
    void forget();  // the context's memory is gone

private:
    mutable std::mutex mutex_;
    bool made_ = false;
    std::map<std::uint64_t, std::uint64_t> free_, used_;  // address -> bytes
};

}  // namespace hpe::soft
