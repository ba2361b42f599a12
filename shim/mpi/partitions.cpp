// SPDX-License-Identifier: MIT
// A list of the requests with partitions.
#include "shim/mpi/partitions.h"

#include <algorithm>
#include <new>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/mpi/short_list.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

constinit ShortList<Partitions> all;

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
    all.take([this](const Partitions& one) { return &one == this; });
}

void Partitions::made(MPI_Request request) noexcept {
    request_ = request;
    all.add(this);
}

Partitions* Partitions::find(MPI_Request request) noexcept {
    return all.find([&](const Partitions& one) { return one.request_ == request; });
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
