// SPDX-License-Identifier: MIT
// What every driver door is made of: the call behind it, and the order of things around a call that makes the device
// work.
//
// Threads: any thread of the program; host callbacks of streams are told by ThreadState. Arguments belong to the caller
// and are handed on. Errors: the true call's, or that of the work in front of it, in which case the true call is not
// made. A treatment may throw std::bad_alloc, which the wrapper turns into CUDA_ERROR_OUT_OF_MEMORY; what the true call
// has done by then must be undone, or do no harm.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/uncached.h"
#include "shim/copies/reservations.h"
#include "shim/doors/exported.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/observe/recording.h"
#include "shim/process/process.h"

// For launches when no object has host-valid blocks: inlined, so that no call of ours copies the eleven arguments
// again. Functions called on that path, or to record a launch, are [[gnu::hot]]: the linker puts them side by side,
// since the driver's launch leaves little in the caches.
#define HPE_HOT [[gnu::always_inline]] inline

namespace hpe::doors {

// One exported driver function. Sorted by name.
struct DoorEntry {
    const char* name;
    void* wrapper;
    bool treated;     // always wrapped; otherwise the wrapper only counts
    bool catalogued;  // has a row in cuda_catalog.inc
};
extern const DoorEntry door_table[];
extern const std::size_t door_count;
extern std::atomic<void*> door_real[];
extern std::atomic<std::uint64_t> door_calls[];

// The true function of a door, found late for programs that are linked with libcuda; nullptr if there is none.
void* find_real(std::size_t index) noexcept;

// The answer to dlsym or cuGetProcAddress for a true driver function: its wrapper, or the function itself.
void* door_for(void* real) noexcept;

// A program linked with libcuda looks nothing up: its first call is its first use.
bool linked_first_use() noexcept;

// Calls of libcuda to itself, of inert processes, and with HPE_PROTOCOL=off go straight through.
[[gnu::hot]] bool unsettled_passes_through() noexcept;
inline bool passes_through() noexcept {
    // Only threads of an active process are settled: a launch reads this one word.
    return this_thread.quick ? this_thread.inside != 0 : unsettled_passes_through();
}
// Which of those calls are recorded, and come back by traced() (traced.h).
HPE_HOT bool is_traced() noexcept { return this_thread.inside == 0 && recording(); }

// The true function behind a door, and how it reads stream 0.
template <class Function>
class Call;
template <class Result, class... Parameters>
class Call<Result (*)(Parameters...)> {
public:
    Call(std::size_t index, Flavour reads_zero_as) noexcept : flavour(reads_zero_as), index_(index) {}

    // As the program would have called it.
    HPE_HOT Result straight(Parameters... arguments) const {
        auto* real = function();
        return real != nullptr ? real(arguments...) : CUDA_ERROR_NOT_FOUND;
    }
    // From within a treatment.
    HPE_HOT Result operator()(Parameters... arguments) const {
        Result result;
        {
            Inside inside;
            result = straight(arguments...);
        }
        if (this_thread.touched_inside) [[unlikely]] {
            coherence().end_touched_inside();
        }
        return result;
    }
    Result counted(Parameters... arguments) const;  // traced.h

    const char* name() const noexcept { return door_table[index_].name; }

    const Flavour flavour;

private:
    using Pointer = Result (*)(Parameters...);
    Pointer function() const noexcept {
        void* real = door_real[index_].load(std::memory_order_relaxed);
        if (real == nullptr) [[unlikely]] {
            real = find_real(index_);
        }
        return reinterpret_cast<Pointer>(real);
    }
    const std::size_t index_;
};

// The stream among a call's arguments; the default stream if it takes none.
constexpr CUstream stream_of() { return nullptr; }
template <class First, class... Rest>
constexpr CUstream stream_of(const First& first, const Rest&... rest) {
    if constexpr (std::is_same_v<First, CUstream>) {
        return first;
    } else {
        return stream_of(rest...);
    }
}

// Around every call that makes the device read or write memory. `before` releases the blocks that the work may touch,
// and no fault is served from then until the work is counted as outstanding. `touched`: all memory that the work reads
// and writes, if that is known.
template <class Before, class Real>
HPE_HOT CUresult device_work(CUstream stream, Flavour flavour, Before&& before, Real&& real,
                             const Touched* touched = nullptr) {
    // Captured, not executed: coherence happens when the graph is launched.
    if (in_flight.capturing(stream, flavour)) return real();
    auto result = CUDA_SUCCESS;
    auto& state = coherence();
    // What this thread stored to a page that another one has open comes before the work.
    if (state.page_open()) [[unlikely]] {
        uncached::let_step_end();
    }
    {
        const LaunchInGate in_gate(state.launch_gate(), named(stream, flavour));
        if (state.launch_gate().reserved()) [[unlikely]] {
            reservations::give_way(named(stream, flavour), touched);
        }
        if (state.needs_release()) result = before();
        if (result == CUDA_SUCCESS) [[likely]] {
            result = real();
            in_flight.enqueued(stream, flavour, this_thread.slot);
        }
    }
    // What was opened before the work was counted shows the page as it was before the work.
    if (state.page_open()) [[unlikely]] {
        uncached::let_step_end();
    }
    // A signal handler accessed an object meanwhile.
    if (this_thread.touched_inside) [[unlikely]] {
        state.end_touched_inside();
    }
    return result;
}

// The conservative treatment: everything is released.
template <class C, class... A>
HPE_HOT CUresult enqueue(const C& call, A... arguments) {
    return device_work(
        stream_of(arguments...), call.flavour,
        [] { return coherence().release(); }, [&]() __attribute__((always_inline)) { return call(arguments...); });
}

}  // namespace hpe::doors
