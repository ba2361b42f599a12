// SPDX-License-Identifier: MIT
// A count in the object, and what is to be done where the CPU came.
#include "shim/copies/lent.h"

#include <atomic>
#include <utility>

#include "shim/coherence/coherence.h"
#include "shim/copies/own_work.h"
#include "shim/driver/inflight.h"
#include "shim/memory/lent_ranges.h"

namespace hpe {

Lent::Lent(std::uintptr_t begin, std::size_t bytes, For use) noexcept : begin_(begin), bytes_(bytes), use_(use) {
    Object* const object = coherence().object_of(begin);
    if (object == nullptr || object->touched()) return;
    const ObjectUse in_use(*object, begin);
    if (!in_use || bytes > object->bytes_from(begin)) return;
    // As with the later messages of a window: what comes first would be paid for each.
    if (!in_flight.only_messages() && !bulk::InOrder(object->context)) return;
    // Either the CPU's first use is seen here, or it sees this.
    lent_ranges::add(begin, bytes);
    object->lent.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (object->touched()) {
        object->lent.fetch_sub(1, std::memory_order_release);
        lent_ranges::remove(begin, bytes);
        return;
    }
    if (use == For::Writing) object->birth = 0;  // it will hold data
    object_ = object;
    serial_ = in_use.serial();
}

Lent::Lent(Lent&& other) noexcept
    : begin_(other.begin_),
      bytes_(other.bytes_),
      use_(other.use_),
      object_(other.object_),
      serial_(std::exchange(other.serial_, 0)) {}

Lent::~Lent() {
    if (serial_ == 0) return;
    lent_ranges::remove(begin_, bytes_);
    // Also where the program has freed the allocation: others of its region go on.
    const ObjectUse in_use(*object_, object_->base);
    if (!in_use || in_use.serial() != serial_) return;
    if (use_ == For::Writing && object_->touched()) {
        OwnWork work(object_->context);
        if (work) work.run({}, {begin_, bytes_}, [] { return CUDA_SUCCESS; });
    }
    object_->lent.fetch_sub(1, std::memory_order_release);
}

}  // namespace hpe
