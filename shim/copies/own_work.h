// SPDX-License-Identifier: MIT
// Device work of libhpe's own, in place of CPU accesses to objects that a call of the program would make: copies of
// stretches, packing. It begins when the device work before it has ended, as a CPU access would (bulk::InOrder; not
// with Order::AtOnce), has a stream of its own that waits for nothing of the program's, and has ended on return (not
// with begin()).
//
// Source: ADSM/GMAC paper section 4.4 (interposed bulk memory calls).
//
// Bytes; memory is the caller's, streams belong to a context and die with it. Threads: any, outside the fault path and
// the gate. Errors: the driver's; what was to be written is then undefined, or as it was.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shim/base/thread.h"
#include "shim/copies/bulk.h"
#include "shim/copies/reservations.h"
#include "shim/driver/inflight.h"
#include "shim/observe/trace.h"

namespace hpe {

// Whether the range lies in one object, and most of it is not valid on the host: then the device is the one to work
// with it.
bool mostly_on_device(std::uintptr_t begin, std::size_t bytes) noexcept;

class OwnWork {
public:
    // `context`: of the objects that are used.
    explicit OwnWork(void* context, bulk::Order order = bulk::Order::AfterAll) noexcept;
    // False: not on this thread, not now, or the device cannot.
    explicit operator bool() const noexcept { return stream_ != nullptr; }
    CUstream stream() const noexcept { return stream_; }

    // Calls work() inside the gate, as a launch, with the objects' blocks ready; it returns the driver's answer.
    template <class Work>
    CUresult run(DeviceRange reads, DeviceRange writes, Work&& work) noexcept {
        return in_gate(reads, writes, &stream_, [&] {
            const auto result = work();
            // What was prefetched before is old now, and a new object has data.
            if (writes.bytes != 0) enqueued();
            const auto mark = in_flight.mark(stream_, Flavour::Legacy);
            const auto waited = wait();
            if (waited == CUDA_SUCCESS) in_flight.finished(mark);
            return result == CUDA_SUCCESS ? waited : result;
        });
    }
    // The same for what need not have ended on return: it counts as in flight until the mark is finished.
    template <class Work>
    CUresult begin(DeviceRange writes, Work&& work, InFlight::Mark& mark) noexcept {
        return in_gate({}, writes, &stream_, [&] {
            const auto result = work();
            enqueued();
            mark = in_flight.mark(stream_, Flavour::Legacy);
            return result;
        });
    }

    // What was written there last is on the device on return.
    CUresult settle(DeviceRange range) noexcept {
        return in_gate(range, {}, nullptr, [] { return CUDA_SUCCESS; });
    }

    // Within work(), in its order: between the device and memory of ours, done when run() returns.
    CUresult to_host(std::byte* to, CUdeviceptr from, std::size_t bytes) noexcept;
    CUresult to_device(CUdeviceptr to, const std::byte* from, std::size_t bytes) noexcept;

    // Whether work of ours in the context would wait for none of the program's: nothing else is outstanding.
    static bool begins_at_once(void* context) noexcept;

    // The context's streams died with it.
    static void forget(CUcontext context) noexcept;

private:
    // `waits`: for what is still on its way to the device; nullptr: the CPU does.
    template <class Work>
    CUresult in_gate(DeviceRange reads, DeviceRange writes, const CUstream* waits, Work&& work) noexcept {
        auto result = CUDA_SUCCESS;
        {
            auto& state = coherence();
            const Touched touched{writes, reads};
            const LaunchInGate in_gate(state.launch_gate(), stream_);
            if (state.launch_gate().reserved()) reservations::give_way(stream_, &touched);
            result = state.before_device_reads(reads, waits);
            if (result == CUDA_SUCCESS) result = state.before_device_writes(writes, waits);
            if (result == CUDA_SUCCESS) {
                const Inside inside;
                result = work();
            }
        }
        if (this_thread.touched_inside) coherence().end_touched_inside();  // by a signal handler
        return result;
    }
    CUresult wait() noexcept;
    void enqueued() const noexcept;

    const bulk::InOrder in_order_;
    CUstream stream_ = nullptr;
};

// A transfer between an object, some byte of which lies at `at`, and memory of ours, for the report and the timeline.
// The bytes count as moved if done() is called.
class OwnTransfer {
public:
    enum class To { Host, Device };
    OwnTransfer(To to, const char* name, std::uintptr_t at, std::size_t bytes) noexcept;
    void done() noexcept;

private:
    const To to_;
    const std::size_t bytes_;
    Object* const object_;
    trace::Transfer traced_;
    Traffic& traffic_;
};

// Between two objects of one context, by the device. False: it was not made.
bool copy_within_device(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) noexcept;

// Whether a range of an object is to be copied to memory of ours, which leaves it on the device: it lies there for the
// most part, and is long, or the object's small copies are the device's (memory/small_copies.h).
bool copied_by_device(std::uintptr_t begin, std::size_t bytes) noexcept;

// Scope of a copy of such a range, by either side: it counts for the next ones.
class CountedCopy {
public:
    CountedCopy(std::uintptr_t begin, std::size_t bytes) noexcept;
    ~CountedCopy();
    CountedCopy(const CountedCopy&) = delete;
    CountedCopy& operator=(const CountedCopy&) = delete;
    // The least of it that is the device's.
    std::size_t smallest() const noexcept { return smallest_; }

private:
    Object* object_ = nullptr;  // of a small copy
    std::size_t smallest_ = bulk::kSmallest;
};

// As the CPU would, but by the device where the range lies on it alone, and copied_by_device() says so: to memory of
// ours, and from there. Return how many bytes were copied, as lease::load() and store() do.
std::size_t load_by_device(std::byte* to, const void* from, std::size_t bytes, const void* caller) noexcept;
std::size_t store_by_device(void* to, const std::byte* from, std::size_t bytes, const void* caller) noexcept;

}  // namespace hpe
