// SPDX-License-Identifier: MIT
// Coherence: where shadows are mapped, and what is done when the kernel has no more mappings to give. Class of this
// file: that of the fault path.
#include <cerrno>
#include <cstring>

#include "shim/base/helper.h"
#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/loans.h"
#include "shim/driver/driver.h"
#include "shim/memory/arena.h"
#include "shim/memory/mappings.h"
#include "shim/memory/pager.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/read_ahead.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

// Makes every object with valid blocks one mapping again; their blocks are opened anew when they are touched. Inside
// the gate, as a fault: no object is freed meanwhile.
void Coherence::merge_mappings() noexcept {
    auto left = host_valid_objects_.load(std::memory_order_acquire);
    for (auto* object = host_valid_list_.load(std::memory_order_acquire); object != nullptr && left-- != 0;
         object = object->next_host_valid) {
        if (!object->is_open() || !object->shadowed.load(std::memory_order_acquire)) continue;
        pager::close_shadow(*object);
    }
}

// Before anything that maps, protects or unmaps, so that none of it fails. Inside the gate, as a fault, or with the
// doors' mutex: no object is freed meanwhile. No block is locked.
void Coherence::spare_mappings(const Object* kept) noexcept {
    if (!mappings::scarce()) [[likely]] {
        return;
    }
    const Locked lock(mapping_);
    unmap_others(kept);
}

// Gives the mappings of all objects but one back; their blocks keep their states and their data, and the next touch of
// each maps it again. The caller holds mapping_.
void Coherence::unmap_others(const Object* kept) noexcept {
    bool any = false;
    ObjectPool::for_open([&](Object& other) {
        const auto serial = other.serial();
        if (&other == kept || serial % 2 == 0 || !other.shadowed.load(std::memory_order_acquire)) return;
        const auto count = other.blocks();
        bool usable = true;
        std::uint32_t locked = 0;
        for (; usable && locked < count; ++locked) {
            other.block(locked).lock();
            usable = other.alive(serial) && other.blocks() == count && !other.block(locked).borrowed();
        }
        if (usable && pager::unmap_shadow(other.base, other.size)) {
            other.shadowed.store(false, std::memory_order_release);
            any = true;
        }
        other.unlock(0, locked);
    });
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (!any || said.test_and_set()) return;
    log::warn(
        "hardly any mappings are left (vm.max_map_count): host copies are unmapped, and mapped anew when they are "
        "touched; this may happen again unsaid");
}

// The caller holds mapping_.
void Coherence::became_mapped(Object& object) noexcept {
    object.shadowed.store(true, std::memory_order_release);
    ever_mapped_.store(true, std::memory_order_release);
}

// Whether the driver has reserved the addresses around an allocation: other pages may be the program's own.
bool Coherence::reserved(std::uintptr_t begin, std::size_t size, std::uintptr_t allocation) noexcept {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
    void* found[] = {&base, &bytes};
    return driver.cuPointerGetAttributes(2, attributes, found, allocation) == CUDA_SUCCESS && base <= begin &&
           bytes >= size && base + bytes - begin >= size;
}

// The chunk of an allocation.
bool Coherence::reserved_as_whole(std::uintptr_t in_chunk) noexcept {
    return reserved(in_chunk / Allocations::kChunk * Allocations::kChunk, Allocations::kChunk, in_chunk);
}

bool Coherence::map_shadow(Object& object, std::uintptr_t address, bool unordered) noexcept {
    if (!object.touch()) return false;
    if (!unordered) spare_mappings(&object);
    if (object.shadowed.load(std::memory_order_acquire)) return true;
    if (object.is_region()) {
        bool reserved = false;
        helper::with_driver(unordered, helper::Kind::Transfer,
                            [&] { reserved = reserved_as_whole(object.allocation_in_page(address)); });
        if (!reserved) {
            log::error(
                "the driver does not say that all of the chunk {:#x} of addresses is reserved: it stays on the device",
                object.base);
            return false;
        }
    }
    Locked lock(mapping_);
    bool mapped = object.shadowed.load(std::memory_order_relaxed);
    if (!mapped) {
        mapped = pager::map_shadow(object.base, object.size, Arena::closed(object.view));
        if (!mapped && errno == ENOMEM && !unordered) {
            unmap_others(&object);
            mapped = pager::map_shadow(object.base, object.size, Arena::closed(object.view));
        }
        if (mapped) became_mapped(object);
    }
    lock.unlock();
    if (!mapped) {
        log::error("cannot map a host copy of object {:#x} ({} bytes): {}; it stays on the device", object.base,
                   object.size, strerrordesc_np(errno));
    }
    return mapped;
}

// In a region that is the region's mapping, also if that came there meanwhile.
void Coherence::close_page(std::uintptr_t page) noexcept {
    const Locked lock(mapping_);
    const Object* const region = table_.find(page);
    const bool shadowed = region != nullptr && region->shadowed.load(std::memory_order_acquire);
    const bool closed = shadowed ? pager::map_shadow(page, kPage, Arena::closed(region->view + (page - region->base)))
                                 : pager::unmap_shadow(page, kPage);
    if (!closed) pager::protect(page, kPage, State::Invalid);
}

// The kernel refused to split a mapping: from here on the object is one block, wholly present, and one mapping.
bool Coherence::coarsen(Object& object, std::uint32_t serial, bool unordered) noexcept {
    if (object.is_region() && object.allocations->any_uncached()) {
        log::error("mprotect on object {:#x} failed ({}) and it cannot be opened whole: others may write a part of it",
                   object.base, strerrordesc_np(errno));
        return false;
    }
    const auto count = object.blocks();
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto before = object.block(i).lock();
        if (i == 0 &&
            (!object.alive(serial) || object.blocks() != count || !object.shadowed.load(std::memory_order_acquire))) {
            object.block(0).unlock(before);
            return true;  // another thread was faster: the access is repeated and judged anew
        }
    }
    // Loans end first, while the object still has the blocks that were borrowed.
    const bool whole =
        end_loans_of(object, {0, count}, unordered) == CUDA_SUCCESS && bring_whole(object, count, unordered);
    if (!whole) {
        log::error("mprotect on object {:#x} failed ({}) and it cannot be brought whole", object.base,
                   strerrordesc_np(errno));
        object.unlock(0, count);
        return false;
    }
    bool none_valid = true;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!valid_on_host(object.block(i).peek().state)) continue;
        if (!none_valid) object.host_valid_blocks.fetch_sub(1, std::memory_order_release);
        none_valid = false;
    }
    if (none_valid) became_valid(object, 1);
    object.coarsen();
    for (std::uint32_t i = 1; i < count; ++i) object.block(i).unlock(State::Invalid);
    object.block(0).unlock(State::Dirty);
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    if (!said.test_and_set()) {
        log::warn(
            "mprotect on object {:#x} failed (the limit on mappings?): it is one block of {} bytes from here on; "
            "others may follow unsaid",
            object.base, object.size);
    }
    return true;
}

// Every block is locked. In a callback the whole object is borrowed, and only its changes are flushed: the device may
// be writing any part of it until the loan ends.
bool Coherence::bring_whole(Object& object, std::uint32_t count, bool unordered) noexcept {
    const auto order = unordered ? Engine::Order::Unordered : Engine::Order::Launching;
    if (unordered && !pager::close_shadow(object)) return false;
    auto result = CUDA_SUCCESS;
    helper::with_driver(unordered, helper::Kind::Transfer, [&] {
        // Nothing may arrive later in what is about to be written.
        result = read_ahead::drop(object);
        if (result == CUDA_SUCCESS) result = settle_flushes();
        for (std::uint32_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
            const auto state = object.block(i).peek().state;
            if (!valid_on_host(state)) result = engine.fetch(object, object.offset_of(i), object.bytes_of(i), order);
            if (unordered && state == State::Dirty) {
                result = engine.flush(object, object.offset_of(i), object.bytes_of(i), order);
            }
        }
        const auto drained = unordered ? engine.drain() : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS) result = drained;
    });
    if (result != CUDA_SUCCESS) return false;
    Loan* const loan = unordered ? loans::make(object, 0) : nullptr;
    if (unordered && (loan == nullptr || !loan->keep_twin(object.size))) {
        if (loan != nullptr) loans::end(*loan);
        return false;
    }
    // Writable at once: one mapping with one protection is hardly ever refused for lack of mappings.
    const auto opened = [&] {
        return pager::protect(object.base, object.size, State::Dirty) ||
               pager::map_shadow(object.base, object.size, object.view);
    };
    if (opened()) return true;
    if (unordered) {
        loans::end(*loan);
        return false;
    }
    merge_mappings();
    return opened();
}

}  // namespace hpe
