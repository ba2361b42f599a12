// SPDX-License-Identifier: MIT
// Pinned buffers for prefetched blocks whose view is not pinned: a copy straight to such a view would keep the CPU
// waiting. A few buffers of one context, made one by one as they are needed, within HPE_PINNED_LIMIT.
//
// Bytes. Threads: one at a time, under a lock of the owner's; take() with the context current, all device work waited
// for, and also in the fault path. A buffer belongs to whoever took it until it is given back. Errors: take() returns
// nullptr.
#pragma once

#include <array>
#include <cstddef>

namespace hpe {

class PrefetchBuffers {
public:
    // For two sweeps with two windows each, a window being four buffers at most.
    static constexpr std::size_t kBytes = std::size_t{2} << 20, kMost = 16, kMostAtOnce = 4;

    std::byte* take() noexcept;
    void give_back(std::byte* buffer) noexcept;
    // The context's memory went with it. No buffer is taken.
    void forget() noexcept;

private:
    std::array<std::byte*, kMost> free_{};
    std::size_t free_count_ = 0, made_ = 0;
};

}  // namespace hpe
