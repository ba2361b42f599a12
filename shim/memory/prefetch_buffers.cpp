// SPDX-License-Identifier: MIT
// A stack of free buffers: the one that was used last may still be in a cache.
#include "shim/memory/prefetch_buffers.h"

#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

std::byte* PrefetchBuffers::take() noexcept {
    if (free_count_ != 0) return free_[--free_count_];
    if (made_ == kMost || !pinned::take(kBytes)) return nullptr;
    void* memory = nullptr;
    if (driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
        pinned::give_back(kBytes);
        return nullptr;
    }
    ++made_;
    return static_cast<std::byte*>(memory);
}

void PrefetchBuffers::give_back(std::byte* buffer) noexcept { free_[free_count_++] = buffer; }

void PrefetchBuffers::forget() noexcept {
    pinned::give_back(made_ * kBytes);
    free_count_ = made_ = 0;
}

}  // namespace hpe
