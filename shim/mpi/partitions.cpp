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

bool Partitions::make(CallBuffers& buffers, std::unique_ptr<Partitions>& to) noexcept {
    if (buffers.partitions() == 0) return true;
    std::unique_ptr<bool[]> there(new (std::nothrow) bool[static_cast<std::size_t>(buffers.partitions())]);
    if (there != nullptr) to.reset(new (std::nothrow) Partitions(buffers, std::move(there)));
    return to != nullptr;
}

Partitions::Partitions(CallBuffers& buffers, std::unique_ptr<bool[]> there) noexcept
    : buffers_(buffers), there_(std::move(there)) {
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
    std::fill_n(there_.get(), buffers_.partitions(), false);
}

bool Partitions::load(int first, int last) noexcept {
    last = std::min(last, buffers_.partitions() - 1);
    for (int i = std::max(first, 0); i <= last; ++i) {
        if (!buffers_.load_partition(i)) return false;
    }
    return true;
}

bool Partitions::store_once(int partition) noexcept {
    return std::exchange(there_[static_cast<std::size_t>(partition)], true) || buffers_.store_partition(partition);
}

bool Partitions::store(int partition) noexcept {
    if (partition < 0 || partition >= buffers_.partitions()) return true;
    const Locked held(mutex_);
    return store_once(partition);
}

bool Partitions::finish() noexcept {
    const Locked held(mutex_);
    bool all_stored = true;
    for (int i = 0; i < buffers_.partitions(); ++i) all_stored = store_once(i) && all_stored;
    return all_stored;
}

void Partitions::end() noexcept {
    const Locked held(mutex_);
    std::fill_n(there_.get(), buffers_.partitions(), true);
}

}  // namespace hpe::mpi::HPE_MPI_ABI
