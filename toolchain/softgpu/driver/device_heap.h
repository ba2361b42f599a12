// SPDX-License-Identifier: MIT
// The heap from which kernels of one context take memory with malloc and new. It is made when a kernel first asks for
// some, as large as CU_LIMIT_MALLOC_HEAP_SIZE then says, and lives until the context ends.
//
// Threads: any worker that runs kernels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace hpe::soft {

class Context;

class DeviceHeap {
public:
    std::uint64_t allocate(Context& context, std::uint64_t bytes);  // 0: none left
    bool release(std::uint64_t address);                            // false: not from here
    bool made() const;
    void forget();  // the context's memory is gone

private:
    mutable std::mutex mutex_;
    bool made_ = false;
    std::map<std::uint64_t, std::uint64_t> free_, used_;  // address -> bytes
};

}  // namespace hpe::soft
