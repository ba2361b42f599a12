// SPDX-License-Identifier: MIT
// Coherence: memory that others will access, and what shares pages with it.
#include <algorithm>
#include <optional>

#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/coherence/uncached.h"
#include "shim/coherence/virtual_memory.h"
#include "shim/memory/lent_ranges.h"

namespace hpe {

namespace {

// What an allocation of the region has of a page that is not shared.
void add_uncached(const Object& region, const Allocations::One& one, std::size_t page) {
    const auto first = std::max(one.offset, page), last = std::min(one.end(), page + kPage);
    device_owned::add(region.base + first, last - first, "it shares a page with memory that others may write",
                      region.context);
}

// One thread at a time: who exports the same memory, or what shares its pages, finds what this one has made of it.
constinit Mutex handing_over;

std::size_t first_page(const Allocations::One& one) noexcept { return one.offset / kPage * kPage; }
std::size_t last_page(const Allocations::One& one) noexcept { return (one.end() - 1) / kPage * kPage; }

// The MPI that an object is lent to exports it, and uses it for messages only, of which libhpe knows.
bool is_lent(const Allocation& allocation) noexcept {
    return allocation && allocation.object->lent.load(std::memory_order_acquire) != 0 &&
           lent_ranges::overlap(allocation.base, allocation.bytes);
}

}  // namespace

CUresult Coherence::hand_over(std::uintptr_t address, const char* reason) {
    if (!is_lent(allocation_of(address))) virtual_memory::others_use_mapping(address);
    return hand_over_object(address, reason);
}

CUresult Coherence::hand_over_object(std::uintptr_t address, const char* reason) {
    const auto allocation = allocation_of(address);
    if (!allocation || is_lent(allocation)) return CUDA_SUCCESS;
    const LaunchInGate in_gate(launch_gate_);
    return hand_over_in_gate(address, reason);
}

CUresult Coherence::hand_over_in_gate(std::uintptr_t address, const char* reason) {
    const Locked lock(handing_over);
    auto allocation = allocation_of(address);
    if (!allocation) return CUDA_SUCCESS;
    const auto result = before_device_writes({allocation.object->base, allocation.object->size});
    if (result != CUDA_SUCCESS) return result;
    const auto size = allocation.object->is_region() ? allocation.bytes : allocation.object->size;
    // Before it leaves the table: an access of another thread finds it in one of the two. What shares its pages goes
    // first: whoever opened such a page for that would write the rest unseen.
    device_owned::add(allocation.base, size, reason, allocation.context, allocation.bytes);
    share_no_page(allocation.base, size);
    const auto begun = begin_free(allocation);
    if (begun != CUDA_SUCCESS) {
        device_owned::remove(allocation.base);
        // What it has of pages that are uncached now.
        const Locked regions(regions_);
        Object& object = *allocation.object;
        const auto offset = allocation.base - object.base;
        if (object.is_region() && object.allocations->at(offset).bytes != 0) {
            keep_apart(object, {offset, allocation.bytes});
        }
        return begun;
    }
    if (allocation.object->view_is_read.load(std::memory_order_acquire)) {
        allocation.object->view_is_kept.store(true, std::memory_order_release);
    }
    finish_free(allocation);
    return CUDA_SUCCESS;
}

void Coherence::end_uncached_of_region(const Allocation& allocation) {
    const Object& object = *allocation.object;
    if (!object.allocations->any_uncached()) return;
    device_owned::remove_within(allocation.base, allocation.bytes);
    uncached::let_step_end();
}

void Coherence::keep_off(std::uintptr_t base, std::size_t bytes, const char* reason) {
    std::optional<LaunchInGate> in_gate;
    if (!this_thread.in_gate) in_gate.emplace(launch_gate_);
    const Locked lock(handing_over);
    device_owned::add(base, bytes, reason);
    share_no_page(base, bytes);
}

// What other allocations of a region have of the pages of those bytes is not shared any more.
void Coherence::share_no_page(std::uintptr_t base, std::size_t bytes) {
    const Locked lock(regions_);
    for (const auto page : {base / kPage * kPage, (base + bytes - 1) / kPage * kPage}) {
        Object* const region = table_.find(page);
        if (region == nullptr || !region->is_region()) continue;
        const auto& all = *region->allocations;
        const auto offset = page - region->base, end = offset + kPage;
        const auto for_others = [&](auto&& run) {
            bool any = false;
            auto one = all.holding(offset).bytes != 0 ? all.holding(offset) : all.from(offset);
            for (; one.bytes != 0 && one.offset < end; one = all.from(one.offset + 1)) {
                if (region->base + one.offset == base) continue;
                run(one);
                any = true;
            }
            return any;
        };
        // Before the mark: an access of another thread finds them then.
        if (!for_others([&](const Allocations::One& one) { add_uncached(*region, one, offset); })) continue;
        if (mark_uncached(*region, page)) continue;
        for_others(
            [&](const Allocations::One& one) { device_owned::remove(region->base + std::max(one.offset, offset)); });
    }
}

// Once the device has its bytes. False: the device does not take them.
bool Coherence::mark_uncached(Object& region, std::uintptr_t page) {
    const SignalsBlocked blocked;
    const auto locked = lock_on_device(region, {page, kPage});
    if (locked.empty()) return false;
    region.allocations->mark_uncached(page - region.base);
    close_gaps(region, page - region.base, kPage);
    region.unlock(locked.first, locked.end);
    return true;
}

CUresult Coherence::hand_over(DeviceRange range, const char* reason) {
    const Object* const region = table_.find(range.begin);
    if (region == nullptr || !region->is_region()) {
        virtual_memory::others_use_what_is_no_object(range.begin, range.bytes);
        // Mappings side by side are objects of their own.
        const auto end = range.begin + range.bytes;
        for (auto at = range.begin; at < end;) {
            DeviceRange next{end, 0};
            table_.overlapping(at, end - at, [&](Object& one) {
                if (next.bytes == 0) next = {one.base, one.size};
            });
            if (next.bytes == 0) break;
            if (const auto result = hand_over(next.begin, reason); result != CUDA_SUCCESS) return result;
            at = next.begin + next.bytes;
        }
        return CUDA_SUCCESS;
    }
    const auto& all = *region->allocations;
    const auto serial = region->serial();
    const auto begin = range.begin - region->base, end = std::min(begin + range.bytes, region->size);
    const auto first_page = begin / kPage * kPage + kPage;
    const auto before = all.holding(begin);
    auto next = all.from(begin);
    const bool only_a_tail = before.offset < begin && before.end() <= first_page && next.bytes != 0 &&
                             next.offset < std::min(first_page, end);
    if (before.bytes != 0 && before.offset < begin && !only_a_tail) {
        if (const auto result = hand_over(region->base + before.offset, reason); result != CUDA_SUCCESS) return result;
    }
    for (; next.bytes != 0 && next.offset < end; next = all.from(next.offset + 1)) {
        if (const auto result = hand_over(region->base + next.offset, reason); result != CUDA_SUCCESS) return result;
        if (!region->alive(serial)) break;  // that was its last
    }
    return CUDA_SUCCESS;
}

// An allocation comes into the region: of its first and last page others may write what was exported before. Of those
// between them nobody can any more.
void Coherence::keep_apart(Object& region, const Allocations::One& one) {
    if (!device_owned::any() && !region.allocations->any_uncached()) return;
    device_owned::remove_of_graphs(region.base + one.offset, one.bytes);
    for (auto page = first_page(one) + kPage; page < last_page(one); page += kPage) {
        region.allocations->mark_shared(page);
    }
    for (const auto page : {first_page(one), last_page(one)}) {
        device_owned::Entry other;
        if (!region.allocations->uncached(page) && !device_owned::find(region.base + page, kPage, other)) continue;
        region.allocations->mark_uncached(page);
        add_uncached(region, one, page);
    }
}

}  // namespace hpe
