// SPDX-License-Identifier: MIT
// Doors of start-up, contexts, streams, capture and waiting.
// Threads, ownership and errors: door.h.
#pragma once

#include <memory>

#include "shim/coherence/device_owned.h"
#include "shim/coherence/module_variables.h"
#include "shim/copies/own_work.h"
#include "shim/copies/packing.h"
#include "shim/copies/reducing.h"
#include "shim/doors/cuda_copy.h"
#include "shim/driver/by_context.h"
#include "shim/driver/loaded_kernels.h"
#include "shim/driver/message_library.h"
#include "shim/driver/primary_contexts.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/remote_read.h"
#include "shim/memory/arena.h"
#include "shim/mpi/device_memory.h"
#include "shim/mpi/host_memory.h"
#include "shim/observe/kernel_times.h"
#include "shim/transfer/across.h"
#include "shim/transfer/engine.h"
#include "shim/transfer/peers.h"
#include "shim/transfer/read_ahead.h"
#include "shim/transfer/staging.h"

namespace hpe::doors {

template <class C>
CUresult init(const C& call, unsigned flags) {
    const CUresult result = call(flags);
    if (result == CUDA_SUCCESS) process::cuda_started();
    return result;
}

template <class C>
CUresult export_table(const C& call, const void** table, const CUuuid* id) {
    const CUresult result = call(table, id);
    if (log::enabled(log::Level::Debug) && id != nullptr) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(id->bytes);
        log::debug("export table {:02x}{:02x}{:02x}{:02x}-... asked for: result {}", bytes[0], bytes[1], bytes[2],
                   bytes[3], static_cast<int>(result));
    }
    return result;
}

template <class C, class... A>
CUresult resolve(const C& call, const char* symbol, void** function, A... rest) {
    const CUresult result = call(symbol, function, rest...);
    if (result == CUDA_SUCCESS && function != nullptr && *function != nullptr) *function = door_for(*function);
    return result;
}

// --- waiting ---------------------------------------------------------------------------------------------------------

template <class C, class... A>
CUresult synchronize_context(const C& call, A... context) {
    InFlight::Mark marks[InFlight::kMaxMarks];
    // The form with a context waits for that context, which tells nothing of the current one.
    const unsigned count = sizeof...(context) == 0 ? in_flight.mark_context(marks) : 0;
    const CUresult result = call(context...);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) in_flight.finished(marks[i]);
    return after_wait(result);
}

template <class C>
CUresult synchronize_stream(const C& call, CUstream stream) {
    if (in_flight.capturing(stream, call.flavour)) return call(stream);
    const auto mark = in_flight.mark(stream, call.flavour);
    const CUresult result = call(stream);
    if (result == CUDA_SUCCESS) in_flight.finished(mark);
    return after_wait(result);
}

template <class C>
CUresult synchronize_event(const C& call, CUevent event) {
    return after_wait(call(event));
}

// A stream that waits for a captured event joins the capture: its earlier work must be remembered first.
template <class C>
CUresult stream_wait_event(const C& call, CUstream stream, CUevent event, unsigned flags) {
    if (in_flight.capturing_anywhere()) in_flight.snapshot(stream);
    return call(stream, event, flags);
}

// Begins a capture, outside of all stream reservations: no piece of a copy may be captured.
template <class C, class... A>
CUresult begin_capture(const C& call, CUstream stream, A... rest) {
    auto& gate = coherence().launch_gate();
    const LaunchInGate in_gate(gate, named(stream, call.flavour));
    if (gate.reserved()) reservations::give_way(named(stream, call.flavour), nullptr);
    in_flight.capture_began(stream, call.flavour);
    // Waits for launches into threads' own default streams, which do not know of the capture yet. A launch that the
    // driver keeps for longer sees the capture when it returns (InFlight::enqueued).
    constexpr unsigned kPatience = 5;  // milliseconds
    gate.wait_for_launches(
        this_thread.slot, [](LaunchGate::Where where) { return where == CU_STREAM_PER_THREAD; }, kPatience);
    in_flight.snapshot_all();
    const CUresult result = call(stream, rest...);
    if (result != CUDA_SUCCESS) in_flight.capture_ended(stream, call.flavour);
    return result;
}

template <class C>
CUresult end_capture(const C& call, CUstream stream, CUgraph* graph) {
    // An invalidated capture ends, too. A stream that was not capturing ends none.
    const bool was = in_flight.capturing(stream, call.flavour);
    const CUresult result = call(stream, graph);
    if (was && (result == CUDA_SUCCESS || !in_flight.capturing(stream, call.flavour))) {
        in_flight.capture_ended(stream, call.flavour);
    }
    return result;
}

// --- life cycle ------------------------------------------------------------------------------------------------------

// Inlined into the door, whose caller it looks at.
template <class C, class... A>
HPE_HOT CUresult create_stream(const C& call, CUstream* stream, A... how) {
    const bool for_messages = message_library::holds(__builtin_return_address(0));
    const CUresult result = call(stream, how...);
    if (for_messages && result == CUDA_SUCCESS) in_flight.carries_messages(*stream);
    return result;
}

template <class C>
CUresult destroy_stream(const C& call, CUstream stream) {
    const bool was = in_flight.capturing(stream, call.flavour);
    in_flight.destroyed(stream);
    const CUresult result = call(stream);
    if (was && result == CUDA_SUCCESS) in_flight.capture_ended(stream, call.flavour);
    return result;
}

// Everything in a context ends with it. `gone` says, after a successful call, whether the context really ended.
template <class True, class Gone>
CUresult end_context_in_gate(CUcontext context, True&& true_call, Gone&& gone, bool& ended) {
    auto& state = coherence();
    LaunchInGate in_gate(state.launch_gate());
    const Coherence::Ending ending(state);
    // If the context stays, what the CPU wrote must be on the device.
    const CUresult flushed = state.release();
    if (flushed != CUDA_SUCCESS) log::warn("cannot flush before a context ends: {}", error_name(flushed));
    peers.ending(context);
    kernel_times::ending(context);
    const auto variables = module_variables::take(context);
    const auto kept = state.drop_context(context);
    const auto uncached = device_owned::take(context);
    const CUresult result = true_call();
    ended = result == CUDA_SUCCESS && gone();
    if (ended) {
        engine.forget(context);
        across::forget(context);
        read_ahead::forget(context);
        staging::forget(context);
        in_flight.forget(context);
        loaded_kernels::forget();
        peers.forget(context);
        packing::forget(context);
        reducing::forget(context);
        OwnWork::forget(context);
        mpi::HostMemory::forget(context);
        mpi::DeviceMemory::forget(context);
        ipc::exports_forget(context);
        kernel_times::forget(context);
        Arena::forget_pins(context);
        state.forget_sticky_error(context);
        context_places.give_back(context);
    } else {
        device_owned::put_back(uncached);
        kernel_times::stayed(context);
        state.restore_context(context, kept);
        module_variables::put_back(variables);
    }
    return result;
}

template <class True, class Gone>
CUresult end_context(CUcontext context, True&& true_call, Gone&& gone) {
    if (context == nullptr) return true_call();
    bool ended = false;
    const CUresult result = end_context_in_gate(context, true_call, gone, ended);
    // Outside the gate: another thread may be about to enter it while it reads a message.
    if (ended) ipc::imports_forget(context);
    return result;
}

template <class C>
CUresult destroy_context(const C& call, CUcontext context) {
    return end_context(
        context, [&] { return call(context); }, [] { return true; });
}

// A driver may store what these return while it holds a lock, for which a fetch of the block would wait.
template <class C, class Number, class... A>
CUresult returns_number(const C& call, Number* number, A... rest) {
    Number returned{};
    const CUresult result = call(number != nullptr ? &returned : nullptr, rest...);
    if (result == CUDA_SUCCESS && number != nullptr) *number = returned;
    return result;
}

template <class C>
CUresult reset_primary(const C& call, CUdevice device) {
    CUcontext context = nullptr;
    const CUresult found = primary_context(device, context);
    // Its objects are found by the context: none may outlive it.
    if (found != CUDA_SUCCESS) return found;
    return end_context(
        context,
        [&] {
            const CUresult result = call(device);
            if (result == CUDA_SUCCESS) primary_contexts.reset(device);
            return result;
        },
        [] { return true; });
}

template <class C>
CUresult retain_primary(const C& call, CUcontext* context, CUdevice device) {
    const CUresult result = call(context, device);
    if (result == CUDA_SUCCESS) primary_contexts.retained(device);
    return result;
}

template <class C>
CUresult release_primary(const C& call, CUdevice device) {
    if (const auto result = primary_contexts.release_one_of_several(device, [&] { return call(device); }))
        return *result;
    CUcontext context = nullptr;
    const CUresult found = primary_context(device, context);
    if (found != CUDA_SUCCESS) return found;
    return end_context(
        context, [&] { return call(device); },
        [&] {
            int active = 0;
            return primary_is_active(device, active) == CUDA_SUCCESS && active == 0;
        });
}

}  // namespace hpe::doors
