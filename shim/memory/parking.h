// SPDX-License-Identifier: MIT
// Pinned memory where blocks wait that were fetched ahead for a host copy that is not pinned: the device cannot write
// there while the CPU works. A few bays of one context, made one by one as they are needed, within HPE_PINNED_LIMIT.
//
// Bytes. Threads: one at a time, under a lock of the owner's; take() with the context current, all device work waited
// for, and also in the fault path. A bay belongs to who took it until it is given back. Errors: take() gives nullptr.
#pragma once

#include <array>
#include <cstddef>

namespace hpe {

class Parking {
public:
    // Two sweeps with two windows each that are as long as four bays.
    static constexpr std::size_t kBay = std::size_t{2} << 20, kBays = 16, kMostAtOnce = 4;

    std::byte* take() noexcept;
    void give_back(std::byte* bay) noexcept;
    // The context's memory went with it; nobody has a bay.
    void forget() noexcept;

private:
    std::array<std::byte*, kBays> free_{};
    std::size_t free_count_ = 0, made_ = 0;
};

}  // namespace hpe
