// SPDX-License-Identifier: MIT
// Coherence: the fault path. Class of this file: no allocation, no lock that the program or libcuda can hold, system
// calls and driver transfers only.
#include <algorithm>

#include "protocols/object_sweeps.h"
#include "protocols/sweeps.h"
#include "shim/base/helper.h"
#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/coherence/fault_path.h"
#include "shim/coherence/loans.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/memory/arena.h"
#include "shim/memory/pager.h"
#include "shim/observe/call_sites.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/progress.h"
#include "shim/observe/trace.h"
#include "shim/transfer/copiers.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/read_ahead.h"
#include "shim/transfer/staging.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

// The calling thread's sweeps.
thread_local constinit ThreadSweeps thread_sweeps __attribute__((tls_model("initial-exec")));

// Calls run(first, last) for each longest stretch of [first, first + count) whose blocks `wanted` accepts.
template <class Wanted, class Run>
void for_stretches(std::uint32_t first, std::uint32_t count, Wanted&& wanted, Run&& run) noexcept {
    for (auto i = first; i < first + count;) {
        if (!wanted(i)) {
            ++i;
            continue;
        }
        const auto begin = i;
        while (i < first + count && wanted(i)) ++i;
        run(begin, i - 1);
    }
}

std::size_t span_bytes(const Object& object, std::uint32_t first, std::uint32_t last) noexcept {
    return object.offset_of(last) + object.bytes_of(last) - object.offset_of(first);
}

Event event_of(const Coherence::Access& access) noexcept { return access.is_write ? Event::CpuWrite : Event::CpuRead; }

void count_fault(Object& object, const Coherence::Access& access, std::size_t fetched, trace::Fault& traced) noexcept {
    const auto offset = access.address - object.base;
    auto& traffic = object.traffic_at(offset);
    auto& faults = access.is_write ? traffic.write_faults : traffic.read_faults;
    faults.fetch_add(1, std::memory_order_relaxed);
    call_sites::note(access.instruction, fetched);
    progress::faults.fetch_add(1, std::memory_order_relaxed);
    call_stacks::add(call_stacks::Cost::Count, 1);
    call_stacks::add(call_stacks::Cost::FetchedBytes, fetched);
    traced.served(object.report_id_at(offset), fetched);
}

void say_not_fetched(const Object& object, std::uint32_t index, CUresult result) noexcept {
    log::error("cannot fetch {} bytes of object {:#x} from the device: {}", object.bytes_of(index), object.base,
               error_name(result));
}

// 1: the object's blocks do not divide huge pages evenly.
std::uint32_t blocks_in_huge_page(const Object& object) noexcept {
    const auto block = object.block_bytes();
    const bool fit = object.base % Arena::kChunk == 0 && Arena::kChunk % block == 0;
    return fit ? static_cast<std::uint32_t>(Arena::kChunk / block) : 1;
}

// A sweep through the region beside goes on into this one, whose allocations lie side by side with those: all of it is
// opened then. One block: it does not.
Stretch goes_on_into(const Object& region, std::uint32_t index, bool is_write, const ThreadSweeps& sweeps) noexcept {
    const auto blocks = region.blocks();
    const bool upwards = index == 0;
    if (!region.is_region() || (!upwards && index + 1 != blocks) ||
        !sweeps.regions.reached(region.base, region.base + region.size, upwards, is_write)) {
        return {index, 1, 1};
    }
    return {index, upwards ? 1 : -1, blocks};
}

}  // namespace

// Neighbouring blocks of an object, locked.
struct Coherence::Run {
    Object& object;
    std::uint32_t first;
    std::uint32_t count;

    std::uint32_t end() const noexcept { return first + count; }
    std::size_t bytes() const noexcept { return span_bytes(object, first, end() - 1); }
    State state(std::uint32_t i) const noexcept { return object.block(i).peek().state; }
    void become(State next) const noexcept {
        for (auto i = first; i < end(); ++i) object.block(i).become(next);
    }
    void unlock() const noexcept { object.unlock(first, end()); }
};

Coherence::Served Coherence::serve_fault(const Access& access, trace::Fault& traced) noexcept {
    const auto ended = ends_.load(std::memory_order_acquire);
    Object* object = object_of(access.address);
    const auto serial = object != nullptr ? object->serial() : 0;
    // Otherwise device work that the access depends on has finished already, or the program has a race.
    const bool unordered = !may_wait_for_device();
    const bool inside = this_thread.in_callback != 0 || this_thread.inside != 0;
    const bool interrupted = unordered && !inside;
    if (serial % 2 == 0) {
        // The object may be taken out by a call that the driver refuses, and comes back then.
        const bool ending =
            ending_.load(std::memory_order_acquire) != 0 || ends_.load(std::memory_order_acquire) != ended;
        if (!ending || interrupted || !may_hold(access.address)) return Served::NotOurs;
        // What is uncached waits for no such call: it may be waiting for this very host function.
        if (device_owned::Entry found; device_owned::find(access.address, 1, found)) return Served::NotOurs;
        if (inside) return wait_for_ending() ? Served::Done : Served::NotOurs;  // done: judged anew
        const FaultInGate until_then(launch_gate_);
        return object_of(access.address) != nullptr ? Served::Done : Served::NotOurs;
    }
    bool served = false;
    if (!access.by_call) object->small_copies.accessed_by_cpu();
    if (unordered) {
        served = borrow(*object, serial, access, traced);
        if (this_thread.inside != 0 || interrupted) this_thread.touched_inside = true;
    } else {
        helper::with_driver(driver_needs_helper(object->context), helper::Kind::Fault,
                            [&, mine = &thread_sweeps, event = call_stacks::Event::current()] {
                                const call_stacks::Event::Lent lent(event);
                                const auto waited = wait_in_order();
                                if (waited == CUDA_SUCCESS) {
                                    served = serve(*object, serial, access, *mine, traced);
                                } else {
                                    log::error("cannot wait for the device work that may still write object {:#x}: {}",
                                               object->base, error_name(waited));
                                }
                                launch_gate_.leave_fault();
                            });
    }
    return served ? Served::Done : Served::NotOurs;
}

// How far an access opens the blocks of an object of several, and what is to be fetched ahead.
Sweeps::Reach Coherence::reach_of(Object& object, std::uint32_t serial, std::uint32_t index, bool is_write,
                                  ThreadSweeps& sweeps) noexcept {
    const auto most = protocol_->reach_bytes(object.size, block_size_) / object.block_bytes();
    auto reach = sweeps.blocks.fault({&object, serial, index, is_write},
                                     {object.blocks(), static_cast<std::uint32_t>(most), blocks_in_huge_page(object)});
    if (reach.scattered) {
        const auto guess = std::min(most, std::max(Scatter::kBytes / object.block_bytes(), std::size_t{1}));
        reach.open.count =
            std::min(object.scatter.reach(object.blocks(), static_cast<std::uint32_t>(guess)), object.blocks() - index);
    }
    if (const auto all = goes_on_into(object, index, is_write, sweeps); all.count > 1) {
        reach = {{all.first, all.step, std::min(all.count, static_cast<std::uint32_t>(most))}, {}, false};
    }
    return reach;
}

// `sweeps` belong to the thread that faulted.
bool Coherence::serve(Object& object, std::uint32_t serial, const Access& access, ThreadSweeps& sweeps,
                      trace::Fault& traced) noexcept {
    // The object was freed meanwhile: the access is repeated, and then finds no object.
    if (!object.alive(serial) || !object.contains(access.address)) return true;
    if (!map_shadow(object, access.address, false)) return false;
    if (object.lent.load(std::memory_order_seq_cst) != 0) return borrow(object, serial, access, traced);
    const auto index = object.block_at(access.address);
    Block& block = object.block(index);
    auto before = block.lock();
    // Freed, coarsened or unmapped meanwhile: the access is repeated and judged anew.
    if (!usable(object, serial, index)) {
        block.unlock(before);
        return true;
    }
    const auto event = event_of(access);
    if (block.borrowed()) {
        // The borrower saw the device's bytes of that moment. This thread has waited, and must see the present ones.
        if (const auto result = end_loan(*loans::of(object, index)); result != CUDA_SUCCESS) {
            block.unlock(before);
            log::error("cannot flush what a host function wrote to object {:#x}: {}", object.base, error_name(result));
            return false;
        }
        before = State::Invalid;
    }
    const auto next = protocol_->on(before, event).next;
    const bool sweeping = object.blocks() > 1;
    const auto reach =
        sweeping ? reach_of(object, serial, index, access.is_write, sweeps) : Sweeps::Reach{{index, 1, 1}, {}, false};
    Run run{object, index, 1};
    if (reach.open.contiguous()) take_neighbours(run, reach.open, event, next);
    use_huge_pages(object, object.offset_of(run.first), run.bytes());

    std::size_t fetched = 0;
    auto result = bring(run, event, next, false, fetched);
    if (result != CUDA_SUCCESS) {
        run.unlock();
        say_not_fetched(object, index, result);
        return false;
    }
    if (!pager::protect(object, object.offset_of(run.first), run.bytes(), next)) {
        run.unlock();
        return coarsen(object, serial, false);
    }
    if (run.count > 1) map_pages(run);
    std::uint32_t newly_valid = 0;
    for (auto i = run.first; i < run.end(); ++i) newly_valid += !valid_on_host(run.state(i)) && valid_on_host(next);
    if (newly_valid != 0) became_valid(object, newly_valid);
    const bool again = next == State::Dirty && block.take_evicted();
    run.become(next);
    run.unlock();
    if (next == State::Dirty && before != State::Dirty) became_dirty({&object, serial, run.first, run.count}, again);
    if (object.is_region() && run.count > 1 && (run.first == 0 || run.end() == object.blocks())) {
        sweeps.regions.fault(object.base, object.base + object.size, access.is_write, 0);
        sweeps.blocks.opened(run.count);
    }
    if (!sweeping) {
        open_neighbours(object, event, next, sweeps.objects);
    } else if (reach.scattered) {
        object.scatter.opened(run.count);
        if (run.count > 1) sweeps.blocks.opened(run.count);
    } else {
        const auto opened = reach.open.contiguous() ? run.count : open_arrived(object, reach.open, fetched);
        if (opened < reach.open.count) {
            sweeps.blocks.opened(opened);
        } else if (reach.ahead.count != 0) {
            fetch_ahead(object, reach.ahead);
        }
    }
    count_fault(object, access, fetched, traced);
    return true;
}

// As serve(), for a thread that must not wait, or an object that others are writing to: it borrows the one block, until
// end_loan().
bool Coherence::borrow(Object& object, std::uint32_t serial, const Access& access, trace::Fault& traced) noexcept {
    const ObjectUse use(object, access.address);
    if (!use || use.serial() != serial) return true;
    // Closed meanwhile: the access is repeated.
    if (!map_shadow(object, access.address, true)) return !object.alive(serial);
    const auto index = object.block_at(access.address);
    Block& block = object.block(index);
    const auto before = block.lock();
    // Outside the gate the allocation may have left its region, too.
    if (!usable(object, serial, index) || !object.holds(access.address)) {
        block.unlock(before);
        return true;
    }
    const auto event = event_of(access);
    const auto next = protocol_->on(before, event).next;
    const bool borrowed = block.borrowed();
    // A block that is in the needed state already needs no loan: at most its protection was lost (merge_mappings).
    Loan* const loan = next != before ? loans::make(object, index) : nullptr;
    if (next != before && loan == nullptr) {
        block.unlock(before);
        end_loan_at(loans::oldest());
        return true;
    }
    const auto leave = [&] {
        if (loan != nullptr && !borrowed) loans::end(*loan);
        if (!valid_on_host(before)) object.host_valid_blocks.fetch_sub(1, std::memory_order_release);
        block.unlock(before);
    };
    // From here on a launch waits for the block's lock, and releases the block.
    if (!valid_on_host(before)) became_valid(object, 1);
    if (loan != nullptr && !borrowed) {
        loan->device_idle = object.lent.load(std::memory_order_acquire) == 0 && device_waits_for_us();
    }
    std::size_t fetched = 0;
    const Run run{object, index, 1};
    if (const auto result = bring(run, event, next, true, fetched); result != CUDA_SUCCESS) {
        leave();
        say_not_fetched(object, index, result);
        return false;
    }
    if (loan != nullptr && next == State::Dirty && !keep_twin(*loan)) {
        leave();
        log::error("cannot copy a block of object {:#x} that a host function borrows", object.base);
        return false;
    }
    // Others of its allocations in the block stay closed: who accesses them has to wait, and ends the loan.
    const auto open = object.part_of_block(index, access.address);
    if (!pager::protect(object, open.offset, open.bytes, next)) {
        leave();
        return coarsen(object, serial, true);
    }
    count_fault(object, access, fetched, traced);
    block.become(next);
    block.unlock();
    return true;
}

// Locks the blocks of a sweep after the first, as long as the event gives them the same next state.
void Coherence::take_neighbours(Run& run, const Stretch& stretch, Event event, State next) noexcept {
    for (std::uint32_t i = 1; i < stretch.count; ++i) {
        const auto index = stretch.at(i);
        Block& block = run.object.block(index);
        if (!block.try_lock()) return;
        if (block.borrowed() || protocol_->on(block.peek().state, event).next != next) {
            block.unlock();
            return;
        }
        run.first = std::min(run.first, index);
        ++run.count;
    }
}

// The CPU sweeps through memory: what helps with its pages and with what is sent of it at the launch. Making threads
// allocates, so another thread does it.
void Coherence::want_helpers(const Object& object) noexcept {
    if (copiers::running() != 0 || staging::helpers() == 0) return;
    helpers_wanted_.store(object.base, std::memory_order_relaxed);
    helper::later([] { the_coherence.start_helpers(); });
}

void Coherence::start_helpers() noexcept {
    const FaultInGate in_gate(launch_gate_);  // neither the object nor its context ends meanwhile
    const Object* const object = table_.find(helpers_wanted_.load(std::memory_order_relaxed));
    if (object == nullptr) return;
    const ContextScope scope(object->context);
    staging::start_helpers();
}

// A sweep will touch the whole run: its pages are mapped at once, not trap by trap.
void Coherence::map_pages(const Run& run) noexcept {
    Object& object = run.object;
    want_helpers(object);
    for_stretches(
        run.first, run.count, [&](std::uint32_t i) { return !object.block(i).mapped(); },
        [&](std::uint32_t first, std::uint32_t last) {
            const auto bytes = span_bytes(object, first, last);
            const auto offset = object.offset_of(first);
            copiers::map_pages(reinterpret_cast<void*>(object.base + offset), bytes,
                               !Arena::used(object.view + offset) && !Arena::huge(object.view + offset));
            for (auto i = first; i <= last; ++i) object.block(i).mark_mapped();
        });
}

// Brings the bytes to the view that the transitions ask for. Prefetched bytes that the device has not changed since are
// there already.
CUresult Coherence::bring(const Run& run, Event event, State next, bool unordered, std::size_t& fetched) noexcept {
    Object& object = run.object;
    const auto wanted = [&](std::uint32_t i) { return protocol_->on(run.state(i), event).action == Action::Fetch; };
    bool any = false, any_requested = false;
    for (auto i = run.first; i < run.end(); ++i) {
        any = any || wanted(i);
        any_requested = any_requested || object.block(i).prefetch_requested();
    }
    if (!any) return CUDA_SUCCESS;
    if (sticky_error() != CUDA_SUCCESS) return sticky_error();
    const auto work = in_flight.work();
    // An object that no device work could have written holds no data: a first write fetches nothing. A borrowed block
    // must be fetched, since its changes are told by comparing it with the device's bytes.
    if (object.birth == work && next == State::Dirty && !unordered) return CUDA_SUCCESS;
    auto result = CUDA_SUCCESS;
    helper::with_driver(unordered, helper::Kind::Transfer, [&] {
        // A flush that only a stream waits for may still be reading the same view.
        result = settle_flushes();
        if (result != CUDA_SUCCESS) return;
        // In a callback the device is at work: prefetched bytes may be old.
        if (any_requested)
            result = read_ahead::settle(object, run.first, run.count, unordered ? read_ahead::kNothing : work);
        if (result != CUDA_SUCCESS) return;
        const auto missing = [&](std::uint32_t i) {
            if (!wanted(i)) return false;
            if (!object.block(i).take_prefetch_request()) return true;
            read_ahead::used(object, i);
            fetched += object.bytes_of(i);
            return false;
        };
        const auto order = unordered ? Engine::Order::Unordered : Engine::Order::Ordered;
        for_stretches(run.first, run.count, missing, [&](std::uint32_t first, std::uint32_t last) {
            if (result != CUDA_SUCCESS) return;
            const auto bytes = span_bytes(object, first, last);
            result = engine.fetch(object, object.offset_of(first), bytes, order);
            if (result == CUDA_SUCCESS) fetched += object.allocated_bytes(object.offset_of(first), bytes);
        });
    });
    return result;
}

// Locks a block that is not valid on the host. False: it is valid, or another thread has locked it.
bool Coherence::lock_if_missing(Object& object, std::uint32_t index) const noexcept {
    Block& block = object.block(index);
    if (!block.try_lock()) return false;
    // The object may have been coarsened meanwhile: then the block does not exist any more.
    const bool missing = index < object.blocks() && object.blocks() > 1 &&
                         protocol_->on(block.peek().state, Event::CpuRead).action == Action::Fetch;
    if (!missing) block.unlock();
    return missing;
}

// Opens the prefetched blocks of a strided sweep for reading. Returns how many blocks of the stretch are open, the
// first included; adds the bytes to `fetched`.
std::uint32_t Coherence::open_arrived(Object& object, const Stretch& stretch, std::size_t& fetched) noexcept {
    const auto work = in_flight.work();
    std::uint32_t opened = 1;
    for (; opened < stretch.count; ++opened) {
        const auto index = stretch.at(opened);
        Block& block = object.block(index);
        if (!lock_if_missing(object, index)) break;
        const bool arrived = block.prefetch_requested() && read_ahead::settle(object, index, 1, work) == CUDA_SUCCESS &&
                             block.take_prefetch_request();
        if (arrived) {
            read_ahead::used(object, index);
            fetched += object.bytes_of(index);
        }
        const auto next = protocol_->on(block.peek().state, Event::CpuRead).next;
        const bool open =
            arrived && pager::protect(object.base + object.offset_of(index), object.bytes_of(index), next);
        if (open) {
            became_valid(object, 1);
            block.become(next);
        }
        block.unlock();
        if (!open) break;
    }
    return opened;
}

void Coherence::fetch_ahead(Object& object, const Stretch& stretch) noexcept {
    // A region is too small to be worth it, and large variables that end within a page are rare.
    if (!read_ahead::on() || object.is_region() || object.device_size != object.size) return;
    if (sticky_error() != CUDA_SUCCESS) return;
    const auto work = in_flight.work();
    if (object.birth == work) return;
    auto reached = stretch;
    for (reached.count = 0; reached.count < stretch.count; ++reached.count) {
        const auto index = stretch.at(reached.count);
        if (!lock_if_missing(object, index)) break;
        if (object.block(index).prefetch_requested()) {
            object.block(index).unlock();
            break;
        }
    }
    // With the blocks locked: the thread that made them Invalid has set streams_wait_ before it unlocked them.
    if (settle_flushes() == CUDA_SUCCESS) read_ahead::start(object, reached, work);
    for (std::uint32_t i = 0; i < reached.count; ++i) object.block(reached.at(i)).unlock();
}

void Coherence::became_dirty(const RunRef& run, bool again) noexcept {
    Plan plan;
    {
        const Locked lock(dirty_runs_);
        protocol_->dirtied(run, again, allocations(), plan);
    }
    for (const auto& victim : plan) evict(victim);
}

// Flushes a run that the protocol chose. Blocks that cannot be flushed stay Dirty: the next launch flushes them, and
// reports the error.
void Coherence::evict(const RunRef& ref) noexcept {
    auto& object = static_cast<Object&>(*ref.object);
    if (!object.alive(ref.serial) || ref.first + ref.count > object.blocks()) return;
    const Run run{object, ref.first, ref.count};
    object.lock(run.first, run.end());
    const auto wanted = [&](std::uint32_t i) {
        return protocol_->on(run.state(i), Event::Evict).action == Action::Flush && !object.block(i).borrowed();
    };
    const auto next = protocol_->on(State::Dirty, Event::Evict).next;
    if (usable(object, ref.serial, run.end() - 1)) {
        for_stretches(ref.first, ref.count, wanted, [&](std::uint32_t first, std::uint32_t last) {
            const auto offset = object.offset_of(first);
            const auto bytes = span_bytes(object, first, last);
            if (!pager::protect(object, offset, bytes, next)) return;
            if (engine.flush(object, offset, bytes, Engine::Order::Ordered) != CUDA_SUCCESS) {
                pager::protect(object, offset, bytes, State::Dirty);
                return;
            }
            object.traffic_at(offset).evictions.fetch_add(1, std::memory_order_relaxed);
            for (auto i = first; i <= last; ++i) {
                object.block(i).become(next);
                object.block(i).mark_evicted();
            }
        });
    }
    run.unlock();
}

}  // namespace hpe
