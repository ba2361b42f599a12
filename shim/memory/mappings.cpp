// SPDX-License-Identifier: MIT
// Counting lines of /proc/self/maps (proc(5)), and a reserve of mappings.
#include "shim/memory/mappings.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/kernel_file.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"

#include "shim/base/in_fault_path.h"

namespace hpe::mappings {

namespace {

// A change inside of a mapping splits it into three.
constexpr long kPerChange = 2;
constexpr std::size_t kPage = 4096;

// Until the first count a process is taken to have this many left: one with few objects never counts.
constinit std::atomic<long> left{4096};

constinit SpinLock counting;
constinit char text[1 << 16] HPE_GUARDED_BY(counting);

long limit() noexcept HPE_REQUIRES(counting) {
    static constinit long found = 0;
    if (found == 0) {
        const auto length = kernel::File("/proc/sys/vm/max_map_count").read(text, sizeof text - 1);
        text[std::max(length, 0L)] = 0;
        found = length > 0 ? std::strtol(text, nullptr, 10) : 65530;
    }
    return found;
}

long count() noexcept HPE_REQUIRES(counting) {
    const kernel::File file("/proc/self/maps");
    long lines = 0;
    for (long length; (length = file.read(text, sizeof text)) > 0;) lines += std::count(text, text + length, '\n');
    return lines;
}

// Pages of alternating protections are a mapping each: enough for some threads that change something at the same time.
constexpr std::size_t kReserved = 64 * kPage;
constinit std::byte* reserve HPE_GUARDED_BY(counting) = nullptr;

void make_reserve() noexcept HPE_REQUIRES(counting) {
    if (reserve != nullptr) return;
    auto* const pages = static_cast<std::byte*>(
        kernel::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
    if (pages == MAP_FAILED) return;
    for (std::size_t at = kPage; at < kReserved; at += 2 * kPage) kernel::mprotect(pages + at, kPage, PROT_READ);
    reserve = pages;
}

}  // namespace

void changed() noexcept { left.fetch_sub(kPerChange, std::memory_order_relaxed); }

bool scarce() noexcept {
    if (left.load(std::memory_order_relaxed) > 0) [[likely]] {
        return false;
    }
    const ErrnoKept kept;
    if (!counting.try_lock()) return false;  // another thread finds out
    const Locked lock(counting, std::adopt_lock);
    const auto most = limit();
    const auto unused = most - most / 8 - count();
    // Where the program itself has nearly all, counting must not become what all time is spent on.
    left.store(std::max(unused, most / 64), std::memory_order_relaxed);
    if (unused > 0) make_reserve();
    return unused <= 0;
}

void refused() noexcept {
    const ErrnoKept kept;
    const Locked lock(counting);
    if (reserve != nullptr) kernel::munmap(reserve, kReserved);
    reserve = nullptr;
    left.store(0, std::memory_order_relaxed);
}

}  // namespace hpe::mappings
