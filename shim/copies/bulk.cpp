// SPDX-License-Identifier: MIT
// Which side has the newest bytes, block by block.
#include "shim/copies/bulk.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/fault_path.h"
#include "shim/coherence/uncached.h"

namespace hpe::bulk {

namespace {

// One side of a call, from an address on.
class Side {
public:
    Side(std::uintptr_t at, std::size_t bytes) noexcept : at_(at), bytes_(bytes), object_(coherence().object_of(at)) {
        if (object_ != nullptr) {
            use_.emplace(*object_, at);
            if (!*use_) object_ = nullptr;
        }
        // Between a region's allocations there is nothing that the device could copy.
        if (object_ != nullptr && object_->bytes_from(at) == 0) {
            object_ = nullptr;
            bytes_ = std::min(bytes, kPage - at % kPage);
        } else if (object_ != nullptr) {
            bytes_ = std::min(bytes, object_->bytes_from(at));
        } else {
            const auto part = uncached::stretch(at, bytes);
            bytes_ = part.bytes;
            context_ = part.context;
            bool first = true;
            coherence().table().overlapping(at, bytes_, [&](Object& object) {
                if (std::exchange(first, false) && object.base > at) bytes_ = object.base - at;
            });
        }
    }
    // Up to the end of the object, or to the next one.
    std::size_t bytes() const noexcept { return bytes_; }
    // Of memory that the device can access; nullptr: it is the CPU's.
    void* context() const noexcept { return object_ != nullptr ? object_->context : context_; }
    bool on_host(std::size_t offset) const noexcept {
        return object_ != nullptr && !device_only() &&
               valid_on_host(object_->block(object_->block_at(at_ + offset)).peek().state);
    }
    // How many bytes from `offset` on are known to be alike: those of a block at least.
    std::size_t alike(std::size_t offset) const noexcept {
        if (object_ == nullptr || device_only()) return bytes_ - offset;
        const auto index = object_->block_at(at_ + offset);
        return object_->base + object_->offset_of(index) + object_->bytes_of(index) - (at_ + offset);
    }

private:
    bool device_only() const noexcept { return object_->host_valid_blocks.load(std::memory_order_acquire) == 0; }

    const std::uintptr_t at_;
    std::size_t bytes_;
    Object* object_;
    void* context_ = nullptr;  // of uncached memory, which is on the device
    std::optional<ObjectUse> use_;
};

}  // namespace

Stretch next(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, std::size_t smallest) noexcept {
    const Side target(to, bytes);
    const Side source(from, from == 0 ? 0 : bytes);
    const auto most = from == 0 ? target.bytes() : std::min(target.bytes(), source.bytes());
    void *const a = target.context(), *const b = from == 0 ? nullptr : source.context();
    if ((a == nullptr && b == nullptr) || (a != nullptr && b != nullptr && a != b)) return {most, nullptr};
    const auto by_device = [&](std::size_t offset) {
        return !target.on_host(offset) && !(b != nullptr && source.on_host(offset));
    };
    const bool device = by_device(0);
    std::size_t same = 0;
    while (same < most && by_device(same) == device) {
        const auto step = target.alike(same);
        same += from == 0 ? step : std::min(step, source.alike(same));
    }
    same = std::min(same, most);
    return {same, device && same >= smallest ? (a != nullptr ? a : b) : nullptr};
}

InOrder::InOrder(void* context, Order order) noexcept {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation_);
    const bool may_wait = may_wait_for_device() && !this_thread.in_fault;
    const bool captured = order == Order::AfterAll && in_flight.capturing_anywhere();
    if (!may_wait || on_alternate_stack() || captured) return;
    const Inside inside;
    current_.emplace(context);
    relaxed_.emplace();
    ready_ = current_->result() == CUDA_SUCCESS &&
             (order == Order::AtOnce || in_flight.wait_but_for_messages() == CUDA_SUCCESS);
}

InOrder::~InOrder() {
    relaxed_.reset();
    current_.reset();
    pthread_setcancelstate(cancellation_, nullptr);
}

}  // namespace hpe::bulk
