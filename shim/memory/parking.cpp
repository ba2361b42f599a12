// SPDX-License-Identifier: MIT
// A stack of free bays: the one that was used last may still be in a cache.
#include "shim/memory/parking.h"

#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"

namespace hpe {

std::byte* Parking::take() noexcept {
    if (free_count_ != 0) return free_[--free_count_];
    if (made_ == kBays || !pinned::take(kBay)) return nullptr;
    void* memory = nullptr;
    if (twice([&] { return driver.cuMemHostAlloc(&memory, kBay, CU_MEMHOSTALLOC_PORTABLE); }) != CUDA_SUCCESS) {
        pinned::give_back(kBay);
        return nullptr;
    }
    ++made_;
    return static_cast<std::byte*>(memory);
}

void Parking::give_back(std::byte* bay) noexcept { free_[free_count_++] = bay; }

void Parking::forget() noexcept {
    pinned::give_back(made_ * kBay);
    free_count_ = made_ = 0;
}

}  // namespace hpe
