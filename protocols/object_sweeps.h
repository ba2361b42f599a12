// SPDX-License-Identifier: MIT
// Predicts a thread's next objects from its faults: small objects that lie side by side and are used one after the
// other, in either direction. As in a sweep through one object (sweeps.h), twice as much is opened each time it goes
// on.
//
// Addresses and bytes. One thread at a time, also inside the fault path: no lock, no allocation, no constructor that
// runs. Errors: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "protocols/sweeps.h"

namespace hpe {

class ObjectSweeps {
public:
    struct Reach {
        std::size_t bytes = 0;  // of the objects beside this one that the fault should open, too
        bool upwards = true;
    };
    // An object at [begin, end) was opened by a fault. `most`: bytes that one fault may open.
    Reach fault(std::uintptr_t begin, std::uintptr_t end, bool is_write, std::size_t most) noexcept {
        Reach reach;
        Sweep* sweep = nullptr;
        for (auto& s : sweeps_) {
            if (s.is_write != is_write || s.end == 0 || (s.end != begin && s.begin != end)) continue;
            sweep = &s;
            reach = {std::min(std::max(2 * s.reach, end - begin), most), s.end == begin};
            break;
        }
        if (sweep == nullptr) {
            sweep = &sweeps_[oldest_];
            oldest_ = (oldest_ + 1) % kSweeps;
        }
        latest_ = static_cast<std::size_t>(sweep - sweeps_.data());
        *sweep = {begin, end, reach.bytes, is_write};
        return reach;
    }
    // Whether a sweep came as far as an object at [begin, end), from below if it goes upwards.
    bool reached(std::uintptr_t begin, std::uintptr_t end, bool upwards, bool is_write) const noexcept {
        return std::any_of(sweeps_.begin(), sweeps_.end(), [&](const Sweep& s) {
            return s.is_write == is_write && s.end != 0 && (upwards ? s.end == begin : s.begin == end);
        });
    }
    // With the last fault's object all of [begin, end) was opened. Less than it was to be does not shorten the next
    // reach: it may have met a border.
    void opened(std::uintptr_t begin, std::uintptr_t end) noexcept {
        sweeps_[latest_].begin = begin;
        sweeps_[latest_].end = end;
    }

private:
    // What the last fault opened, and was to open beside its object.
    struct Sweep {
        std::uintptr_t begin, end;
        std::size_t reach;
        bool is_write;
    };
    static constexpr std::size_t kSweeps = 8;
    std::array<Sweep, kSweeps> sweeps_{};
    std::size_t latest_ = 0, oldest_ = 0;
};

// All that one thread's faults have shown.
struct ThreadSweeps {
    Sweeps blocks;
    ObjectSweeps objects;
    ObjectSweeps regions;  // that were swept through
};

}  // namespace hpe
