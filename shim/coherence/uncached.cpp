// SPDX-License-Identifier: MIT
// A few pages of shared memory, which are mapped at device addresses one instruction long.
#include "shim/coherence/uncached.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <span>

#include "shim/base/helper.h"
#include "shim/base/kernel.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/coherence/fault_path.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/pager.h"
#include "shim/transfer/engine.h"

#include "shim/base/in_fault_path.h"

namespace hpe::uncached {

namespace {

// An instruction accesses four pages at most, but for a gather or a scatter, which goes on where it trapped.
constexpr std::size_t kPages = 4;
// Allocations begin 256 bytes apart or more.
constexpr std::size_t kParts = kPage / 256;

// Held by a thread from its first page to close().
constinit SpinLock turn;

struct Page {
    std::uintptr_t address = 0;  // 0: not open
    std::size_t count = 0;
    std::array<device_owned::Entry, kParts> parts;  // the page has bytes of
    bool changed = false;
    std::byte* view = nullptr;
    alignas(16) std::array<std::byte, kPage> twin;  // what the device gave
};
constinit std::array<Page, kPages> pages HPE_GUARDED_BY(turn){};
constinit std::size_t oldest HPE_GUARDED_BY(turn) = 0;

std::uintptr_t page_of(std::uintptr_t address) noexcept { return address / kPage * kPage; }

bool make_views() noexcept HPE_REQUIRES(turn) {
    if (pages.front().view != nullptr) return true;
    auto* const memory =
        kernel::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE);
    if (memory == MAP_FAILED) return false;
    for (std::size_t i = 0; i < kPages; ++i) pages[i].view = static_cast<std::byte*>(memory) + i * kPage;
    return true;
}

// What of a page is a part's.
struct InPage {
    std::size_t offset, bytes;
};
InPage in_page(const Page& page, const device_owned::Entry& part) noexcept {
    const auto begin = std::max(part.base, page.address);
    return {begin - page.address, std::min(part.base + part.size, page.address + kPage) - begin};
}

// Words of which a byte has changed are sent as a whole, and those side by side at once: nobody sees half of a store
// that is aligned.
void mark_whole_words(Page& page) noexcept {
    constexpr std::size_t kWord = 4;
    for (std::size_t at = 0; at < kPage; at += kWord) {
        std::uint32_t now = 0, before = 0;
        std::memcpy(&now, page.view + at, kWord);
        std::memcpy(&before, page.twin.data() + at, kWord);
        if (now == before) continue;
        before = ~now;
        std::memcpy(page.twin.data() + at, &before, kWord);
    }
}

void send(Page& page) noexcept HPE_REQUIRES(turn) {
    if (!page.changed) return;
    mark_whole_words(page);
    for (std::size_t i = 0; i < page.count; ++i) {
        const auto& part = page.parts[i];
        const auto [offset, bytes] = in_page(page, part);
        const auto sent = engine.write_changes(part.context, page.address + offset, page.view + offset,
                                               page.twin.data() + offset, bytes);
        if (sent != CUDA_SUCCESS) coherence().set_sticky_error(part.context, sent);
    }
}

// Reads what the page has of such memory. Of the neighbours of what is `wanted` the access needs nothing.
CUresult read(Page& page, std::uintptr_t wanted) noexcept {
    const auto count = device_owned::overlapping(page.address, kPage, page.parts);
    page.count = 0;
    bool there = false;
    std::memset(page.view, 0, kPage);
    for (std::size_t i = 0; i < count; ++i) {
        const auto part = page.parts[i];
        const auto [offset, bytes] = in_page(page, part);
        const auto result = engine.read(part.context, page.address + offset, page.view + offset, bytes);
        if (result == CUDA_SUCCESS) {
            page.parts[page.count++] = part;
            there = there || part.base == wanted;
        } else if (part.base == wanted) {
            return result;
        }
    }
    std::memcpy(page.twin.data(), page.view, kPage);
    return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // another thread has taken it out just now
}

// A callback, or a thread inside the driver, may not call it. A thread that never has may be one of the driver's own,
// or be ending, and run a signal handler of the program: it may hold what the driver, or malloc, waits for.
bool elsewhere(CUcontext context) noexcept {
    return !may_wait_for_device() || !this_thread.settled || driver_needs_helper(context);
}

// Nobody else stores anything there once it is unmapped.
void close(std::span<Page> some) noexcept HPE_REQUIRES(turn) {
    const Page* changed = nullptr;
    for (auto& page : some) {
        if (page.address == 0) continue;
        coherence().close_page(page.address);
        page.changed = std::memcmp(page.view, page.twin.data(), kPage) != 0;
        if (page.changed) changed = &page;
    }
    if (changed != nullptr) {
        const auto context = changed->parts.front().context;
        helper::with_driver(elsewhere(context), helper::Kind::Transfer, [&]() HPE_NOT_ANALYSED {
            for (auto& page : some) send(page);
        });
    }
    for (auto& page : some) {
        page.address = 0;
        page.changed = false;
    }
}

CUresult open_page(std::uintptr_t address, const device_owned::Entry& entry, bool by_helper) noexcept
    HPE_REQUIRES(turn) {
    if (!make_views()) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto same =
        std::find_if(pages.begin(), pages.end(), [&](const Page& page) { return page.address == page_of(address); });
    Page& page = same != pages.end() ? *same : pages[oldest++ % kPages];
    close({&page, 1});
    page.address = page_of(address);
    auto result = CUDA_SUCCESS;
    helper::with_driver(by_helper, helper::Kind::Transfer, [&] { result = read(page, entry.base); });
    if (result == CUDA_SUCCESS && (!pager::map_shadow(page.address, kPage, page.view) ||
                                   (entry.read_only && !pager::protect(page.address, kPage, State::ReadOnly)))) {
        coherence().close_page(page.address);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) page.address = 0;
    return result;
}

void advise(std::uintptr_t address, const device_owned::Entry& entry) noexcept {
    static constinit std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (said.test_and_set()) return;
    log::warn(
        "the CPU accesses {:#x} in the device allocation {:#x} of {} bytes, one instruction at a time, each of "
        "which reads from the device: {}; copy larger parts of such memory (cudaMemcpy)",
        address, entry.base, entry.size, entry.reason);
}

bool refused(std::uintptr_t address, const device_owned::Entry& entry, CUresult result) noexcept {
    log::error("cannot read {:#x} in the device allocation {:#x} of {} bytes, which stays on the device ({}): {}",
               address, entry.base, entry.size, entry.reason, error_name(result));
    return false;
}

void give_turn() noexcept HPE_NOT_ANALYSED {
    coherence().set_page_open(false);
    turn.unlock();
}

// After the device work that was enqueued before. Who enqueues some from then on sees that a page is open, and waits.
CUresult take_turn(bool by_helper) noexcept HPE_NOT_ANALYSED {
    constexpr int kMost = 8;  // attempts, beside threads that launch without a pause
    for (int attempt = 0;; ++attempt) {
        const auto work = in_flight.work();
        const auto result = coherence().wait_before_access(by_helper);
        if (result != CUDA_SUCCESS) return result;
        turn.lock();
        coherence().set_page_open(true);
        if (in_flight.work() == work || attempt == kMost) return CUDA_SUCCESS;
        give_turn();
    }
}

template <class Move>
bool move(std::uintptr_t at, std::size_t bytes, Move&& run) noexcept {
    const AsInHandler scope;
    const auto part = stretch(at, bytes);
    if (!part.uncached || part.bytes != bytes || coherence().sticky_error() != CUDA_SUCCESS ||
        coherence().wait_before_access(elsewhere(part.context)) != CUDA_SUCCESS) {
        return false;
    }
    const Locked no_step(turn);
    auto result = CUDA_SUCCESS;
    helper::with_driver(elsewhere(part.context), helper::Kind::Transfer, [&] { result = run(part.context); });
    return result == CUDA_SUCCESS;
}

}  // namespace

Stretch stretch(std::uintptr_t begin, std::size_t bytes) noexcept {
    device_owned::Entry next;
    if (!device_owned::find(begin, bytes, next)) return {bytes, false, nullptr};
    if (next.base > begin) return {std::min(next.base - begin, bytes), false, nullptr};
    return {std::min(next.base + next.size - begin, bytes), next.context != nullptr, next.context};
}

bool read(std::byte* to, std::uintptr_t from, std::size_t bytes) noexcept {
    return move(from, bytes, [&](CUcontext context) { return engine.read(context, from, to, bytes); });
}

bool write(std::uintptr_t to, const std::byte* from, std::size_t bytes) noexcept {
    return move(to, bytes, [&](CUcontext context) { return engine.write(context, to, from, bytes); });
}

bool write_changes(std::uintptr_t to, std::byte* now, const std::byte* before, std::size_t bytes) noexcept {
    return move(to, bytes, [&](CUcontext context) { return engine.write_changes(context, to, now, before, bytes); });
}

bool any_open() noexcept { return this_thread.stepping; }

void let_step_end() noexcept {
    if (!coherence().page_open() || any_open()) return;
    const SignalsBlocked blocked;
    const Locked no_step(turn);
}

// What an access there is to. String functions read whole vectors, so a read may be of any byte of a page that has
// some.
static bool find(std::uintptr_t address, bool to_write, device_owned::Entry& entry) noexcept {
    return device_owned::find(address, 1, entry) || (!to_write && device_owned::find(page_of(address), kPage, entry));
}

// The lock is held beyond the function, by the thread.
bool open(std::uintptr_t address, bool to_write) noexcept HPE_NOT_ANALYSED {
    device_owned::Entry entry;
    const auto changes = device_owned::changes.load(std::memory_order_acquire);
    if (!find(address, to_write, entry) || entry.context == nullptr || (to_write && entry.read_only)) {
        return false;
    }
    const bool first = !any_open();
    auto result = coherence().sticky_error();
    const bool by_helper = elsewhere(entry.context);
    if (first) {
        if (result == CUDA_SUCCESS) result = take_turn(by_helper);
        if (result != CUDA_SUCCESS) return refused(address, entry, result);
        // Another thread may have taken it out: the memory is freed, or has become an object.
        if (!find(address, to_write, entry)) {
            give_turn();
            return false;
        }
    }
    if (result == CUDA_SUCCESS) result = open_page(address, entry, by_helper);
    if (result == CUDA_SUCCESS) {
        advise(address, entry);
        this_thread.stepping = true;
        return true;
    }
    if (first) give_turn();
    // Otherwise the access is judged anew.
    return device_owned::changes.load(std::memory_order_acquire) == changes && refused(address, entry, result);
}

void close() noexcept HPE_NOT_ANALYSED {
    close(pages);
    this_thread.stepping = false;
    give_turn();
}

void in_child() noexcept HPE_NOT_ANALYSED {
    for (auto& page : pages) {
        if (page.address != 0) pager::unmap_shadow(page.address, kPage);
        page.address = 0;
    }
    this_thread.stepping = false;
    give_turn();
}

}  // namespace hpe::uncached
