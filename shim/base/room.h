// SPDX-License-Identifier: MIT
// Room for what is too large for the stack of a fault, whose thread may have little: some places, taken for a scope.
//
// Threads: any, also inside the fault path. Errors: nullptr while all places are taken.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace hpe {

template <class T, std::size_t places = 8>
class Room {
public:
    Room() noexcept {
        for (auto& place : places_) {
            if (place.taken.exchange(true, std::memory_order_acquire)) continue;
            place_ = &place;
            return;
        }
    }
    ~Room() {
        if (place_ != nullptr) place_->taken.store(false, std::memory_order_release);
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    // What somebody else left in it.
    T* get() const noexcept { return place_ != nullptr ? &place_->value : nullptr; }

private:
    struct Place {
        std::atomic<bool> taken;
        T value;
    };
    static constinit inline std::array<Place, places> places_{};
    Place* place_ = nullptr;
};

}  // namespace hpe
