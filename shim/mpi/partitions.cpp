// SPDX-License-Identifier: MIT
// A list of the requests with partitions: programs have few.
#include "shim/mpi/partitions.h"

#include <algorithm>
#include <new>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

constinit std::atomic<Partitions*> first{nullptr};
constinit SpinLock lock;

}  // namespace

bool Partitions::make(Staging& staging, std::unique_ptr<Partitions>& to) noexcept {
    if (staging.partitions() == 0) return true;
    std::unique_ptr<bool[]> there(new (std::nothrow) bool[static_cast<std::size_t>(staging.partitions())]);
    if (there != nullptr) to.reset(new (std::nothrow) Partitions(staging, std::move(there)));
    return to != nullptr;
}

Partitions::Partitions(Staging& staging, std::unique_ptr<bool[]> there) noexcept
    : staging_(staging), there_(std::move(there)) {
    end();
}

Partitions::~Partitions() {
    const Locked held(lock);
    Partitions* at = first.load(std::memory_order_relaxed);
    if (at == this) {
        first.store(next_, std::memory_order_relaxed);
        return;
    }
    while (at != nullptr && at->next_ != this) at = at->next_;
    if (at != nullptr) at->next_ = next_;
}

void Partitions::made(MPI_Request request) noexcept {
    request_ = request;
    const Locked held(lock);
    next_ = first.load(std::memory_order_relaxed);
    first.store(this, std::memory_order_relaxed);
}

Partitions* Partitions::find(MPI_Request request) noexcept {
    if (first.load(std::memory_order_relaxed) == nullptr) return nullptr;
    const Locked held(lock);
    Partitions* at = first.load(std::memory_order_relaxed);
    while (at != nullptr && at->request_ != request) at = at->next_;
    return at;
}

void Partitions::start() noexcept {
    const Locked held(mutex_);
    std::fill_n(there_.get(), staging_.partitions(), false);
}

bool Partitions::load(int first, int last) noexcept {
    last = std::min(last, staging_.partitions() - 1);
    for (int i = std::max(first, 0); i <= last; ++i) {
        if (!staging_.load_partition(i)) return false;
    }
    return true;
}

bool Partitions::store_once(int partition) noexcept {
    return std::exchange(there_[static_cast<std::size_t>(partition)], true) || staging_.store_partition(partition);
}

bool Partitions::store(int partition) noexcept {
    if (partition < 0 || partition >= staging_.partitions()) return true;
    const Locked held(mutex_);
    return store_once(partition);
}

bool Partitions::finish() noexcept {
    const Locked held(mutex_);
    bool all_stored = true;
    for (int i = 0; i < staging_.partitions(); ++i) all_stored = store_once(i) && all_stored;
    return all_stored;
}

void Partitions::end() noexcept {
    const Locked held(mutex_);
    std::fill_n(there_.get(), staging_.partitions(), true);
}

}  // namespace hpe::mpi::HPE_MPI_ABI
