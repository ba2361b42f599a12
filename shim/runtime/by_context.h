// SPDX-License-Identifier: MIT
// What a part of the runtime keeps for each context, found without a lock: a fixed array, filled in the order in which
// contexts are met. A context that ends leaves its place, since a primary context comes back under the same handle.
//
// Threads: any, also inside the fault path. Part has a member `std::atomic<CUcontext> context`; what else it holds it
// guards itself. Errors: nullptr with more contexts than a process can have devices for.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace hpe {

template <class Part>
class ByContext {
public:
    Part* of(CUcontext context) noexcept {
        for (auto& part : parts_) {
            auto found = part.context.load(std::memory_order_acquire);
            if (found == context) return &part;
            if (found == nullptr && part.context.compare_exchange_strong(found, context)) return &part;
            if (found == context) return &part;
        }
        return nullptr;
    }
    // The one that was met, or nullptr.
    Part* known(CUcontext context) noexcept {
        for (auto& part : parts_) {
            const auto found = part.context.load(std::memory_order_acquire);
            if (found == context) return &part;
            if (found == nullptr) break;
        }
        return nullptr;
    }
    auto begin() noexcept { return parts_.begin(); }
    auto end() noexcept { return parts_.end(); }

private:
    static constexpr std::size_t kMost = 64;
    std::array<Part, kMost> parts_{};
};

}  // namespace hpe
