// SPDX-License-Identifier: MIT
// Bounce memory, what is kept of it, and whom to tell of its end.
#include "shim/mpi/host_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/copies/bulk.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/pinned.h"

namespace hpe::mpi {

namespace {

// Copies of less are as fast without: on two H200s an exchange of 16 KiB took 36 us, and 37 by pinned memory; of 64 KiB
// 60, and 49.
constexpr std::size_t kSmallestKept = std::size_t{32} << 10, kLargestKept = std::size_t{256} << 20;
// What other processes take themselves.
constexpr std::size_t kSmallestShared = bulk::kSmallest;
// In the process: kept while nobody uses it, and pinned.
constexpr std::size_t kMostIdle = std::size_t{512} << 20, kMostPinned = std::size_t{512} << 20;

}  // namespace

constinit std::atomic<bool> enabled{true};

void configure(bool on) noexcept { enabled.store(on, std::memory_order_relaxed); }

// A mapping of one of four sizes to each power of two, and a page: the memory begins at any place of the first page. A
// shared one has another page, of the number of bytes that are there.
struct HostMemory::Kept {
    std::byte* mapping = nullptr;
    std::size_t bytes = 0;  // without these pages
    bool idle = false, used_before = false;
    CUcontext pinned_in = nullptr;
    int file = -1;  // of a shared one
    std::uint64_t inode = 0;

    static std::size_t mapped(std::size_t bytes, Sort sort) noexcept {
        return bytes + (sort == Sort::Shared ? 2 : 1) * kPage;
    }
    Sort sort() const noexcept { return file >= 0 ? Sort::Shared : Sort::Own; }
    std::size_t mapped() const noexcept { return mapped(bytes, sort()); }
    std::atomic<std::uint32_t>* arrived() const noexcept {
        return file >= 0 ? reinterpret_cast<std::atomic<std::uint32_t>*>(mapping + bytes + kPage) : nullptr;
    }
    // False: there is no memory.
    bool map(std::size_t wanted, Sort sort) noexcept {
        const auto size = mapped(wanted, sort);
        int made = -1;
        std::uint64_t number = 0;
        if (sort == Sort::Shared) {
            struct stat status {};
            made = memfd_create(ipc::kImageName, MFD_CLOEXEC);
            if (made < 0) return false;
            if (ftruncate(made, static_cast<off_t>(size)) != 0 || fstat(made, &status) != 0) {
                close(made);
                return false;
            }
            number = status.st_ino;
        }
        const int flags = sort == Sort::Shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        void* const at = kernel::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, made);
        if (at == MAP_FAILED) {
            if (made >= 0) close(made);
            return false;
        }
        *this = {static_cast<std::byte*>(at), wanted, false, false, nullptr, made, number};
        return true;
    }

    // A program may have closed all its files: the descriptor is then another file's.
    void close_file() const noexcept {
        struct stat status {};
        if (file >= 0 && fstat(file, &status) == 0 && status.st_ino == inode) close(file);
    }

    static constinit Mutex mutex;  // of all
    static constinit std::array<Kept, 64> all;
};
constinit Mutex HostMemory::Kept::mutex;
constinit std::array<HostMemory::Kept, 64> HostMemory::Kept::all{};

bool HostMemory::keeps(std::size_t bytes) noexcept { return bytes >= kSmallestKept && bytes <= kLargestKept; }

HostMemory::Kept* HostMemory::take(std::size_t bytes, Sort sort) noexcept {
    if (!keeps(bytes) || (sort == Sort::Shared && bytes < kSmallestShared)) return nullptr;
    const auto step = std::bit_floor(bytes) / 4, wanted = (bytes + step - 1) / step * step;
    const Locked lock(Kept::mutex);
    Kept* best = nullptr;
    for (auto& kept : Kept::all) {
        if (kept.idle && kept.bytes == wanted && kept.sort() == sort && (best == nullptr || kept.pinned_in != nullptr))
            best = &kept;
    }
    if (best != nullptr) {
        best->idle = false;
        best->used_before = true;
        return best;
    }
    const auto empty = [](const Kept& kept) { return kept.mapping == nullptr; };
    const auto free = std::find_if(Kept::all.begin(), Kept::all.end(), empty);
    return free != Kept::all.end() && free->map(wanted, sort) ? &*free : nullptr;
}

HostMemory::HostMemory(const void* like, std::size_t bytes, Sort sort) noexcept
    : kept_(take(bytes, sort)), bytes_(bytes) {
    if (kept_ == nullptr && sort == Sort::Shared) kept_ = take(bytes, Sort::Own);
    if (kept_ != nullptr) {
        at_ = kept_->mapping + reinterpret_cast<std::uintptr_t>(like) % kPage;
        if (auto* const arrived = kept_->arrived()) {
            arrived->store(static_cast<std::uint32_t>(bytes), std::memory_order_release);
        }
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
    // The device has failed, and may yet write there: the memory is nobody's any more.
    if (const auto* const arrived = kept_->arrived(); arrived != nullptr && arrived->load() != bytes_) return;
    const Locked lock(Kept::mutex);
    std::size_t idle = kept_->bytes;
    for (const auto& kept : Kept::all) idle += kept.idle ? kept.bytes : 0;
    if (kept_->pinned_in != nullptr || idle <= kMostIdle) {
        kept_->idle = true;
        return;
    }
    kernel::tell_unmapped(kept_->mapping, kept_->mapped());
    kernel::munmap(kept_->mapping, kept_->mapped());
    kept_->close_file();
    *kept_ = {};
}

bool HostMemory::pinned() const noexcept {
    const Locked lock(Kept::mutex);
    return kept_ != nullptr && kept_->pinned_in != nullptr;
}

ipc::Image HostMemory::image() const noexcept {
    if (kept_ == nullptr || kept_->file < 0) return {};
    return {at_,
            kept_->file,
            kept_->inode,
            kept_->mapped(),
            static_cast<std::size_t>(at_ - kept_->mapping),
            kept_->arrived()};
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
