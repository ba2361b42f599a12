// SPDX-License-Identifier: MIT
// What parts of the runtime keep for each context, in fixed arrays. A context has the same place in all of them, from
// when it is first met until it ends; the place is then the next one's.
//
// Threads: any, also inside the fault path: a context that has its place is found without a lock, and the lock that a
// new one takes is held by nobody who could fault or be interrupted. What a part holds it guards itself, and empties
// when its context ends. Errors: nullptr with more contexts at once than a process can have devices for.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"

namespace hpe {

class ContextPlaces {
public:
    static constexpr std::size_t kMost = 64, kNone = kMost;

    std::size_t of(CUcontext context) noexcept {
        if (const auto place = known(context); place != kNone || context == nullptr) return place;
        if (find(nullptr) == kNone) return kNone;
        // One at a time: a place that is given back meanwhile would else be a second one for the same context.
        const SignalsBlocked blocked;
        const Locked lock(adding_);
        if (const auto place = find(context); place != kNone) return place;
        const auto free = find(nullptr);
        if (free != kNone) contexts_[free].store(context, std::memory_order_release);
        return free;
    }
    std::size_t known(CUcontext context) const noexcept { return context != nullptr ? find(context) : kNone; }
    CUcontext at(std::size_t place) const noexcept { return contexts_[place].load(std::memory_order_acquire); }
    // The context has ended, and every part has forgotten what it kept for it.
    void give_back(CUcontext context) noexcept {
        if (const auto place = known(context); place != kNone) {
            contexts_[place].store(nullptr, std::memory_order_release);
        }
    }

private:
    std::size_t find(CUcontext context) const noexcept {
        for (std::size_t place = 0; place < kMost; ++place) {
            if (at(place) == context) return place;
        }
        return kNone;
    }

    std::array<std::atomic<CUcontext>, kMost> contexts_{};
    SpinLock adding_;
};

inline constinit ContextPlaces context_places;

template <class Part, ContextPlaces& places = context_places>
class ByContext {
public:
    Part* of(CUcontext context) noexcept { return at(places.of(context)); }
    // The one that was met, by whatever part, or nullptr.
    Part* known(CUcontext context) noexcept { return at(places.known(context)); }
    // Whose it is now; nullptr: no context's.
    CUcontext context_of(const Part& part) const noexcept {
        return places.at(static_cast<std::size_t>(&part - parts_.data()));
    }

    // All there is place for: some were never of a context, and some of one that has ended.
    auto begin() noexcept { return parts_.begin(); }
    auto end() noexcept { return parts_.end(); }

private:
    Part* at(std::size_t place) noexcept { return place != ContextPlaces::kNone ? &parts_[place] : nullptr; }

    std::array<Part, ContextPlaces::kMost> parts_{};
};

}  // namespace hpe
