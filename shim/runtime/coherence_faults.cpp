// SPDX-License-Identifier: MIT
// Coherence: the fault path. Class of this file: no allocation, no lock that the program or libcuda can hold, system
// calls and driver transfers only.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/runtime/arena.h"
#include "shim/runtime/call_sites.h"
#include "shim/runtime/coherence.h"
#include "shim/runtime/engine.h"
#include "shim/runtime/helper.h"
#include "shim/runtime/inflight.h"
#include "shim/runtime/pager.h"
#include "shim/runtime/real.h"
#include "shim/runtime/trace.h"

namespace hpe {

// A block that became valid while device work around it is under way: in a host callback, or on a thread that is inside
// a call to the driver. It goes back when that ends (end_unordered). Of a written block only the bytes that changed
// since `twin` was taken are sent: the device may be writing its neighbours.
struct Coherence::Unordered {
    Object* object = nullptr;
    std::uint32_t serial = 0;
    std::uint32_t block = 0;
    std::byte* twin = nullptr;  // nullptr: only read
    std::size_t bytes = 0;      // of the block when it was touched
};

namespace {

// Unordered is private to Coherence, and thread-local state must need no constructor: raw storage.
struct UnorderedList {
    static constexpr std::size_t kCapacity = 32, kEntry = 32;
    std::size_t count;
    alignas(8) std::byte storage[kCapacity * kEntry];

    template <class Entry>
    Entry* entries() noexcept {
        static_assert(sizeof(Entry) == kEntry);
        return reinterpret_cast<Entry*>(storage);
    }
};
thread_local constinit UnorderedList unordered_list __attribute__((tls_model("initial-exec"))){};

bool on_alternate_stack() noexcept {
    stack_t stack{};
    return sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

// Runs the work here, or on the helper where driver calls are not allowed or the stack is too small for them.
template <class Work>
void with_driver(bool elsewhere, Work&& work) noexcept {
    if (elsewhere && helper::running()) {
        helper::run(work);
    } else {
        work();
    }
}

}  // namespace

// Makes every object with valid blocks one mapping again; their blocks are opened anew when they are touched. In the
// room, as a fault: no object goes meanwhile.
void Coherence::merge_mappings() noexcept {
    auto left = hot_objects_.load(std::memory_order_acquire);
    for (auto* object = hot_.load(std::memory_order_acquire); object != nullptr && left-- != 0;
         object = object->next_hot) {
        if (object->serial() % 2 == 0 || !object->shadowed.load(std::memory_order_acquire)) continue;
        pager::close_shadow(object->base, object->size, Arena::closed(object->view));
    }
}

// Gives the mappings of all other objects back; their blocks keep their states and their data, and the next touch of
// each maps it again. In the room, as a fault; no block is locked.
void Coherence::unmap_others(const Object& object) noexcept {
    for (auto* other = listed_.load(std::memory_order_acquire); other != nullptr; other = other->next_listed) {
        const auto serial = other->serial();
        if (other == &object || serial % 2 == 0 || !other->shadowed.load(std::memory_order_acquire)) continue;
        const auto count = other->blocks();
        bool usable = true;
        std::uint32_t locked = 0;
        for (; usable && locked < count; ++locked) {
            other->block(locked).lock();
            usable = other->alive(serial) && other->blocks() == count && !other->block(locked).lent();
        }
        if (usable && pager::unmap_shadow(other->base, other->size)) {
            other->shadowed.store(false, std::memory_order_release);
        }
        for (std::uint32_t i = 0; i < locked; ++i) other->block(i).unlock(other->block(i).peek().state);
    }
}

bool Coherence::map_shadow(Object& object, bool unordered) noexcept {
    if (object.shadowed.load(std::memory_order_acquire)) return true;
    std::unique_lock lock(mapping_);
    bool mapped = object.shadowed.load(std::memory_order_relaxed);
    if (!mapped) {
        mapped = pager::map_shadow(object.base, object.size, Arena::closed(object.view));
        if (!mapped && errno == ENOMEM && !unordered) {
            // At the limit on mappings other objects give theirs up.
            unmap_others(object);
            static std::atomic_flag said = ATOMIC_FLAG_INIT;
            if (!said.test_and_set()) {
                log::warn(
                    "no more mappings (vm.max_map_count?) for a host copy of object {:#x}: all others are mapped "
                    "anew when they are touched; this may happen again unsaid",
                    object.base);
            }
            mapped = pager::map_shadow(object.base, object.size, Arena::closed(object.view));
        }
        if (mapped) object.shadowed.store(true, std::memory_order_release);
        if (mapped && !object.listed.exchange(true, std::memory_order_relaxed)) {
            object.next_listed = listed_.load(std::memory_order_relaxed);  // one shadow is mapped at a time
            listed_.store(&object, std::memory_order_release);
        }
    }
    lock.unlock();
    if (!mapped) {
        log::error("cannot map a host copy of object {:#x} ({} bytes): {}; it stays on the device", object.base,
                   object.size, std::strerror(errno));
    }
    return mapped;
}

// Until nothing that the program enqueued before its access is outstanding, and no launch can come between: the room is
// left only to wait, since a launch of another thread must not wait for a kernel.
// In the room on return. An error: the device may still be writing.
CUresult Coherence::wait_in_order() noexcept {
    const trace::Span span(trace::Kind::Wait, "wait for device work");
    constexpr int kPatience = 8;  // then a thread that launches without pause has to let us in
    for (int attempt = 0;; ++attempt) {
        const auto work = in_flight.work();
        // A context that is lost does nothing any more, and the others go on.
        const auto waited = in_flight.wait();
        const auto result = lost_context(waited) ? CUDA_SUCCESS : waited;
        room_.enter_fault();
        if (in_flight.work() == work || result != CUDA_SUCCESS) return result;
        if (attempt == kPatience) {
            const auto last = in_flight.wait();
            return lost_context(last) ? CUDA_SUCCESS : last;
        }
        room_.leave_fault();
    }
}

Coherence::Served Coherence::serve_fault(const Access& access) noexcept {
    Object* object = table_.find(access.address);
    if (object == nullptr) return Served::NotOurs;
    const auto serial = object->serial();
    if (serial % 2 == 0) return Served::NotOurs;
    // Work that such an access may depend on has finished already, or the program races; and waiting here for a stream
    // that waits for us would never end.
    const bool unordered = this_thread.in_callback != 0 || this_thread.inside != 0;
    const bool elsewhere = unordered || on_alternate_stack();
    bool served = false;
    trace::Fault traced(access.address, access.is_write);
    if (unordered) {
        served = serve_block(*object, serial, access, true, traced);
        if (this_thread.inside != 0) this_thread.touched_inside = true;
    } else {
        with_driver(elsewhere, [&] {
            const auto waited = wait_in_order();
            if (waited == CUDA_SUCCESS) {
                served = serve_block(*object, serial, access, false, traced);
            } else {
                log::error("cannot wait for the device work that may still write object {:#x}: {}", object->base,
                           error_name(waited));
            }
            room_.leave_fault();
        });
    }
    return served ? Served::Done : Served::NotOurs;
}

bool Coherence::serve_block(Object& object, std::uint32_t serial, const Access& access, bool unordered,
                            trace::Fault& traced) noexcept {
    // Freed since it was found: the access is repeated, and is then no object's.
    if (!object.alive(serial)) return true;
    if (!map_shadow(object, unordered)) return false;
    const auto index = object.block_at(access.address);
    Block& block = object.block(index);
    const auto before = block.lock();
    if (!object.alive(serial) || index >= object.blocks() || !object.shadowed.load(std::memory_order_acquire)) {
        block.unlock(before);
        return true;  // freed, coarsened or unmapped meanwhile: the access is repeated and judged anew
    }
    const auto offset = object.offset_of(index);
    const auto bytes = object.bytes_of(index);
    const auto [action, next] = protocol_->on(before, access.is_write ? Event::CpuWrite : Event::CpuRead);
    std::size_t fetched = 0;
    if (action == Action::Fetch) {
        // What was never given to the device holds nothing: no copy of garbage for a first write.
        const bool fresh = object.birth == in_flight.work() && next == State::Dirty;
        const auto order = unordered ? Engine::Order::Unordered : Engine::Order::Ordered;
        auto result = damage();
        if (!fresh && result == CUDA_SUCCESS) {
            with_driver(unordered, [&] { result = engine.fetch(object, offset, bytes, order); });
            fetched = bytes;
        }
        if (result != CUDA_SUCCESS) {
            block.unlock(before);
            log::error("cannot fetch {} bytes of object {:#x} from the device: {}", bytes, object.base,
                       error_name(result));
            return false;
        }
    }
    if (unordered && next != before && !remember_unordered({&object, serial, index, nullptr, bytes}, next)) {
        block.unlock(before);
        log::error("no memory to tell what a callback writes to object {:#x}: {}", object.base, std::strerror(errno));
        return false;
    }
    if (!pager::protect(object.base + offset, bytes, next)) {
        block.unlock(before);
        return coarsen(object, serial, unordered);
    }
    auto& faults = access.is_write ? object.traffic.write_faults : object.traffic.read_faults;
    faults.fetch_add(1, std::memory_order_relaxed);
    call_sites::note(access.instruction, fetched);
    traced.served(object.report_id, fetched);
    if (!valid_on_host(before) && valid_on_host(next)) became_valid(object);
    if (unordered) block.lend();
    block.unlock(next);
    if (next == State::Dirty && before != State::Dirty && !unordered) {
        Plan plan;
        protocol_->dirtied({&object, serial, index}, plan);
        for (const auto& victim : plan) evict(victim);
    }
    return true;
}

bool Coherence::remember_unordered(Unordered entry, State next) noexcept {
    auto& list = unordered_list;
    auto* const entries = list.entries<Unordered>();
    auto* const end = entries + list.count;
    auto* known = std::find_if(entries, end, [&](const Unordered& e) {
        return e.object == entry.object && e.serial == entry.serial && e.block == entry.block;
    });
    if (next == State::Dirty) {
        void* memory = MAP_FAILED;
        for (int attempt = 0; attempt < 2 && memory == MAP_FAILED; ++attempt) {
            memory = mmap(nullptr, entry.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        if (memory == MAP_FAILED) return false;
        entry.twin = static_cast<std::byte*>(memory);
        std::memcpy(entry.twin, entry.object->view + entry.object->offset_of(entry.block), entry.bytes);
    }
    if (known == end && list.count == UnorderedList::kCapacity) {
        // Make room: the oldest goes back now, and is fetched again should the callback return to it.
        Unordered oldest = entries[0];
        std::move(entries + 1, end, entries);
        --list.count;
        known = end - 1;
        with_driver(true, [&] { end_one(oldest); });
    }
    if (known == entries + list.count) ++list.count;
    *known = entry;
    return true;
}

void Coherence::evict(const BlockRef& ref) noexcept {
    Object& object = *ref.object;
    if (!object.alive(ref.serial) || ref.block >= object.blocks()) return;
    Block& block = object.block(ref.block);
    const auto before = block.lock();
    const auto [action, next] = protocol_->on(before, Event::Evict);
    auto after = before;
    if (action == Action::Flush && !block.lent() && object.alive(ref.serial) && ref.block < object.blocks() &&
        object.shadowed.load(std::memory_order_acquire)) {
        const auto address = object.base + object.offset_of(ref.block);
        const auto bytes = object.bytes_of(ref.block);
        // A block that cannot be evicted stays Dirty: the next launch flushes it and reports what is wrong.
        if (pager::protect(address, bytes, next)) {
            if (engine.flush(object, object.offset_of(ref.block), bytes, Engine::Order::Ordered) == CUDA_SUCCESS) {
                after = next;
                object.traffic.evictions.fetch_add(1, std::memory_order_relaxed);
            } else {
                pager::protect(address, bytes, before);
            }
        }
    }
    block.unlock(after);
}

// The kernel refused to split a mapping: from here on the object is one block, wholly present, and one mapping.
bool Coherence::coarsen(Object& object, std::uint32_t serial, bool unordered) noexcept {
    // What this callback has of it goes back first, as the blocks that it was.
    if (unordered) end_all_of(object);
    const auto count = object.blocks();
    bool usable = true;
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto before = object.block(i).lock();
        if (i == 0 &&
            (!object.alive(serial) || object.blocks() != count || !object.shadowed.load(std::memory_order_acquire))) {
            object.block(0).unlock(before);
            return true;  // another thread was faster: the access is repeated and judged anew
        }
        // Lent: a callback of another thread is using it, and will look for it under its own number.
        usable = usable && !object.block(i).lent();
    }
    const bool whole = usable && bring_whole(object, count, unordered);
    if (!whole) {
        log::error("mprotect on object {:#x} failed ({}) and it cannot be brought whole", object.base,
                   std::strerror(errno));
        for (std::uint32_t i = 0; i < count; ++i) object.block(i).unlock(object.block(i).peek().state);
        return false;
    }
    bool none_valid = true;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!valid_on_host(object.block(i).peek().state)) continue;
        if (!none_valid) object.valid.fetch_sub(1, std::memory_order_release);
        none_valid = false;
    }
    if (none_valid) became_valid(object);
    object.coarsen();
    for (std::uint32_t i = 1; i < count; ++i) object.block(i).unlock(State::Invalid);
    if (unordered) object.block(0).lend();
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

// Every block is locked. In a callback the whole object is lent, and goes back by what changed: until then the device
// may be writing any part of it.
bool Coherence::bring_whole(Object& object, std::uint32_t count, bool unordered) noexcept {
    const auto order = unordered ? Engine::Order::Unordered : Engine::Order::Launching;
    if (unordered && !pager::close_shadow(object.base, object.size, Arena::closed(object.view))) return false;
    auto result = CUDA_SUCCESS;
    with_driver(unordered, [&] {
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
    if (unordered && !remember_unordered({&object, object.serial(), 0, nullptr, object.size}, State::Dirty)) {
        return false;
    }
    // Writable at once: one mapping with one protection is hardly ever refused for lack of mappings.
    const auto opened = [&] {
        return pager::protect(object.base, object.size, State::Dirty) ||
               pager::map_shadow_open(object.base, object.size, object.view);
    };
    if (opened()) return true;
    if (unordered) return false;
    merge_mappings();
    return opened();
}

// Of the calling thread's callback.
void Coherence::end_all_of(const Object& object) noexcept {
    auto& list = unordered_list;
    auto* const entries = list.entries<Unordered>();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.count; ++i) {
        if (entries[i].object == &object) {
            with_driver(true, [&] { end_one(entries[i]); });
        } else {
            entries[kept++] = entries[i];
        }
    }
    list.count = kept;
}

void Coherence::end_unordered() noexcept {
    auto& list = unordered_list;
    if (list.count == 0) return;
    const int saved = errno;
    SignalsBlocked blocked;
    with_driver(this_thread.in_callback != 0 || this_thread.inside != 0, [this, &list] {
        for (std::size_t i = 0; i < list.count; ++i) end_one(list.entries<Unordered>()[i]);
    });
    list.count = 0;
    errno = saved;
}

void Coherence::damaged(const Object& object, CUresult result) noexcept {
    damaged_context_.store(object.context, std::memory_order_relaxed);
    if (damage_.exchange(result, std::memory_order_acq_rel) != CUDA_SUCCESS) return;
    log::error("cannot send what a callback wrote to object {:#x}: {}; the calls that follow fail", object.base,
               error_name(result));
}

// Sends back what was written and makes the block Invalid. Where driver calls are allowed.
void Coherence::end_one(Unordered& entry) noexcept {
    Object& object = *entry.object;
    if (!object.alive(entry.serial)) {
        if (entry.twin != nullptr) munmap(entry.twin, entry.bytes);
        return;
    }
    Block& block = object.block(entry.block);
    const auto before = block.lock();
    auto after = before;
    block.take_back();
    const auto offset = object.offset_of(entry.block);
    const auto bytes = object.bytes_of(entry.block);
    if (object.alive(entry.serial) && entry.block < object.blocks() && valid_on_host(before) &&
        (!object.shadowed.load(std::memory_order_acquire) ||
         pager::protect(object.base + offset, bytes, State::Invalid) ||
         pager::close_shadow(object.base, object.size, Arena::closed(object.view)))) {
        auto result = CUDA_SUCCESS;
        if (before == State::Dirty) {
            const auto* now = object.view + offset;
            // A coarsened object is sent whole: its twin covers only a part.
            const bool compare = entry.twin != nullptr && bytes == entry.bytes;
            for (std::size_t at = 0; compare && at < bytes && result == CUDA_SUCCESS;) {
                if (now[at] == entry.twin[at]) {
                    ++at;
                    continue;
                }
                const auto begin = at;
                while (at < bytes && now[at] != entry.twin[at]) ++at;
                result = engine.flush(object, offset + begin, at - begin, Engine::Order::Unordered);
            }
            if (!compare) result = engine.flush(object, offset, bytes, Engine::Order::Unordered);
            const auto drained = engine.drain();
            if (result == CUDA_SUCCESS) result = drained;
        }
        if (result == CUDA_SUCCESS) {
            after = State::Invalid;
            object.valid.fetch_sub(1, std::memory_order_release);
        } else {
            damaged(object, result);
        }
    } else if (object.alive(entry.serial) && entry.block < object.blocks() && before == State::Dirty) {
        damaged(object, CUDA_ERROR_OUT_OF_MEMORY);
    }
    block.unlock(after);
    if (entry.twin != nullptr) munmap(entry.twin, entry.bytes);
}

}  // namespace hpe
