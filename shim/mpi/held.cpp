// SPDX-License-Identifier: MIT
// A list: few calls are under way at a time.
#include "shim/mpi/held.h"

#include "shim/base/mutex.h"

namespace hpe::mpi::HPE_MPI_ABI {

constinit Held of_windows, of_files;

void Held::add(Calls call) noexcept {
    const Locked held(lock_);
    call->next.reset(first_);
    first_ = call.release();
    any_.store(true, std::memory_order_release);
}

Held::Calls Held::take(std::uintptr_t handle, int rank) noexcept {
    if (!any_.load(std::memory_order_acquire)) return nullptr;
    Calls taken, left;
    const Locked held(lock_);
    Calls rest(first_);
    while (rest != nullptr) {
        Calls one = std::move(rest);
        rest = std::move(one->next);
        auto& list = one->handle == handle && (rank == kAll || one->rank == rank) ? taken : left;
        one->next = std::move(list);
        list = std::move(one);
    }
    first_ = left.release();
    any_.store(first_ != nullptr, std::memory_order_relaxed);
    return taken;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
