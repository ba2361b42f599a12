// SPDX-License-Identifier: MIT
// Bounce memory, what is kept of it, and whom to tell of its end.
#include "shim/mpi/host_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "protocols/object.h"
#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/copies/bulk.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/pinned.h"

namespace hpe::mpi {

namespace {

// Copies of less are as fast without.
constexpr std::size_t kSmallestKept = bulk::kSmallest, kLargestKept = std::size_t{256} << 20;
// In the process: kept while nobody uses it, and pinned.
constexpr std::size_t kMostIdle = std::size_t{512} << 20, kMostPinned = std::size_t{512} << 20;

}  // namespace

constinit std::atomic<bool> enabled{true};

void configure(bool on) noexcept { enabled.store(on, std::memory_order_relaxed); }

// A mapping of one of four sizes to each power of two, and a page: the memory begins at any place of the first page.
struct HostMemory::Kept {
    std::byte* mapping = nullptr;
    std::size_t bytes = 0;  // without that page
    bool idle = false, used_before = false;
    CUcontext pinned_in = nullptr;

    std::size_t mapped() const noexcept { return bytes + kPage; }

    static constinit Mutex mutex;  // of all
    static constinit std::array<Kept, 64> all;
};
constinit Mutex HostMemory::Kept::mutex;
constinit std::array<HostMemory::Kept, 64> HostMemory::Kept::all{};

HostMemory::Kept* HostMemory::take(std::size_t bytes) noexcept {
    if (bytes < kSmallestKept || bytes > kLargestKept) return nullptr;
    const auto step = std::bit_floor(bytes) / 4, wanted = (bytes + step - 1) / step * step;
    const Locked lock(Kept::mutex);
    Kept* best = nullptr;
    for (auto& kept : Kept::all) {
        if (kept.idle && kept.bytes == wanted && (best == nullptr || kept.pinned_in != nullptr)) best = &kept;
    }
    if (best != nullptr) {
        best->idle = false;
        best->used_before = true;
        return best;
    }
    const auto empty = [](const Kept& kept) { return kept.mapping == nullptr; };
    const auto free = std::find_if(Kept::all.begin(), Kept::all.end(), empty);
    if (free == Kept::all.end()) return nullptr;
    void* const mapping =
        kernel::mmap(nullptr, wanted + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (mapping == MAP_FAILED) return nullptr;
    *free = {static_cast<std::byte*>(mapping), wanted, false, false, nullptr};
    return &*free;
}

HostMemory::HostMemory(const void* like, std::size_t bytes) noexcept : kept_(take(bytes)), bytes_(bytes) {
    if (kept_ != nullptr) {
        at_ = kept_->mapping + reinterpret_cast<std::uintptr_t>(like) % kPage;
    } else if (bounce_.take(like, bytes)) {
        at_ = bounce_.memory();
    }
}

HostMemory::~HostMemory() {
    if (kept_ == nullptr) {
        // Recycled memory stays mapped. Of other memory, caches of registered memory have to know that it ends.
        if (at_ != nullptr && bytes_ > lease::Bounce::kRecycled) kernel::tell_unmapped(at_, bytes_);
        return;
    }
    const Locked lock(Kept::mutex);
    std::size_t idle = kept_->bytes;
    for (const auto& kept : Kept::all) idle += kept.idle ? kept.bytes : 0;
    if (kept_->pinned_in != nullptr || idle <= kMostIdle) {
        kept_->idle = true;
        return;
    }
    kernel::tell_unmapped(kept_->mapping, kept_->mapped());
    kernel::munmap(kept_->mapping, kept_->mapped());
    *kept_ = {};
}

void HostMemory::pin(void* context) const noexcept {
    if (kept_ == nullptr || !kept_->used_before || kept_->pinned_in != nullptr) return;
    const bulk::InOrder in_order(context);
    // Pinning waits for the device, which may be waiting for this thread.
    if (!in_order || !in_flight.idle()) return;
    const Locked lock(Kept::mutex);
    std::size_t pinned = kept_->bytes;
    for (const auto& kept : Kept::all) pinned += kept.pinned_in != nullptr ? kept.bytes : 0;
    if (pinned > kMostPinned || !pinned::take(kept_->mapped())) return;
    const Inside inside;
    // A child has no device, and must not make the kernel copy what the device writes to.
    kernel::madvise(kept_->mapping, kept_->mapped(), MADV_DONTFORK);
    if (driver.cuMemHostRegister_v2(kept_->mapping, kept_->mapped(), CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS) {
        kept_->pinned_in = static_cast<CUcontext>(context);
    } else {
        pinned::give_back(kept_->mapped());
        kept_->used_before = false;  // perhaps later
    }
}

void HostMemory::forget(CUcontext context) noexcept {
    const Locked lock(Kept::mutex);
    for (auto& kept : Kept::all) {
        if (kept.pinned_in != context || context == nullptr) continue;
        kept.pinned_in = nullptr;
        pinned::give_back(kept.mapped());
    }
}

}  // namespace hpe::mpi
