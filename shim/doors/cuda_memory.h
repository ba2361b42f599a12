// SPDX-License-Identifier: MIT
// Doors of allocation (cuMemAlloc and its kin), free, queries, and of memory that other devices or processes write.
//
// Handled: linear device memory (an object each). Stream-ordered memory: cuda_pools.h; mapped memory: cuda_virtual.h.
// Device-owned: memory of IPC, of other APIs and of graphs. Forwarded: host, managed and array memory.
//
// Sizes in bytes. Threads, ownership and errors: door.h.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "shim/coherence/device_owned.h"
#include "shim/copies/wasted.h"
#include "shim/doors/door.h"
#include "shim/doors/fault.h"
#include "shim/doors/mpi_imports.h"
#include "shim/ipc/exports.h"
#include "shim/observe/unread.h"
#include "shim/transfer/peers.h"

namespace hpe::doors {

// Before the program gets the address of an object.
inline void objects_exist() {
    process::objects_exist(on_fault);
    mpi_imports::objects_exist();
}

// The same around what tracks an allocation, of which a program may make very many: libraries that came are looked for
// only where an object is new, not where one was freed a moment ago, since that takes a lock of the loader's.
template <class Track>
[[gnu::hot]] void tracking(Track&& track) {
    process::objects_exist(on_fault);
    track();
    mpi_imports::objects_made(coherence().objects_made());
}

inline std::uintptr_t address(CUdeviceptr pointer) { return static_cast<std::uintptr_t>(pointer); }

// An object with pages of its own. `context`: what it belongs to; nullptr: the current one.
[[gnu::hot]] inline void track(CUdeviceptr pointer, std::size_t bytes, CUcontext context = nullptr) {
    tracking([&] { coherence().track(address(pointer), bytes, Coherence::Peers::OfContext, context); });
    if (call_stacks::on()) wasted::allocated(pointer, bytes);
}

inline void graph_allocates(CUdeviceptr pointer, std::size_t bytes) {
    process::objects_exist(on_fault);
    device_owned::add_of_graph(address(pointer), bytes);
}

// No device memory is left for the allocation with whole pages, but perhaps for the exact bytes, which the program
// would get without libhpe. If the program's CPU accesses objects it gets the error instead: the CPU could not access
// this one.
template <class Exact>
CUresult alloc_exactly(const CUdeviceptr* pointer, std::size_t bytes, Exact&& exact) {
    if (coherence().used_by_cpu()) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = exact();
    if (result == CUDA_SUCCESS) {
        process::objects_exist(on_fault);
        coherence().keep_off(address(*pointer), bytes, "no device memory was left to give it pages of its own");
    }
    return result;
}

// False: the allocation cannot share its pages.
inline bool track_in_region(CUdeviceptr pointer, std::size_t bytes) {
    bool tracked = false;
    tracking([&] { tracked = coherence().track_in_region(address(pointer), bytes); });
    if (!tracked) return false;
    if (call_stacks::on()) wasted::allocated(pointer, bytes);
    return true;
}

template <class C>
[[gnu::hot]] CUresult alloc(const C& call, CUdeviceptr* pointer, std::size_t bytes) {
    const auto padded = Coherence::padded(bytes);
    if (padded == 0) return call(pointer, bytes);
    if (coherence().in_region(bytes)) {
        const CUresult result = call(pointer, bytes);
        if (result != CUDA_SUCCESS || track_in_region(*pointer, bytes)) return result;
        Inside inside;
        driver.cuMemFree_v2(*pointer);
    }
    // Not after the call, which leaves little of the driver in the caches; but the call may be the first that looks for
    // the driver.
    const auto context = driver.cuCtxGetCurrent != nullptr ? current_context() : nullptr;
    CUresult result = call(pointer, padded);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && padded != bytes) {
        result = call(pointer, padded);  // memory may have been freed meanwhile
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            return alloc_exactly(pointer, bytes, [&] { return call(pointer, bytes); });
        }
    }
    if (result == CUDA_SUCCESS) track(*pointer, bytes, context);
    return result;
}

// Rows more than were asked for, so that the last page is the allocation's alone. Drivers make rows of whole
// kPitchUnits; where one does not, alloc_pitch() allocates again.
inline std::size_t spare_rows(std::size_t width, std::size_t height) {
    constexpr std::size_t kPitchUnit = 512;
    const auto row = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (row == 0 || height > std::numeric_limits<std::size_t>::max() / 2 / row) return 0;
    const auto bytes = row * height;
    return coherence().in_region(bytes) ? 0 : (Coherence::padded(bytes) - bytes + row - 1) / row;
}

// The driver chooses the pitch; the pages are padded as those of any other object.
template <class C>
CUresult alloc_pitch(const C& call, CUdeviceptr* pointer, std::size_t* pitch, std::size_t width, std::size_t height,
                     unsigned element) {
    if (pointer == nullptr || pitch == nullptr) return call(pointer, pitch, width, height, element);
    CUdeviceptr rows = 0;
    std::size_t row = 0;
    auto spare = spare_rows(width, height);
    CUresult result = call(&rows, &row, width, height + spare, element);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && spare != 0) {
        spare = 0;
        result = call(&rows, &row, width, height, element);
    }
    if (result != CUDA_SUCCESS) return result;
    const auto bytes = row * height;
    if (coherence().in_region(bytes) && track_in_region(rows, bytes)) {
        *pointer = rows;
        *pitch = row;
        return result;
    }
    const auto padded = Coherence::padded(bytes);
    if (padded > row * (height + spare) || rows % kPage != 0) {
        // Which waits for the device.
        Inside inside;
        driver.cuMemFree_v2(rows);
        result = driver.cuMemAlloc_v2(&rows, padded);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return alloc_exactly(pointer, bytes, [&] { return call(pointer, pitch, width, height, element); });
    }
    if (result != CUDA_SUCCESS) return result;
    *pointer = rows;
    *pitch = row;
    track(rows, bytes);
    return result;
}

// What the true call frees, all or nothing. Untracked before it, since the driver hands the addresses out again at
// once.
template <class Free>
CUresult free_all(std::vector<Allocation>& allocations, Free&& true_free) {
    auto& state = coherence();
    for (const auto& allocation : allocations) {
        state.about_to_free(allocation);
        ipc::ended(allocation);
    }
    const Coherence::Ending may_come_back(state);
    const LaunchInGate in_gate(state.launch_gate());
    CUresult result = CUDA_SUCCESS;
    std::size_t begun = 0;
    while (begun < allocations.size() && result == CUDA_SUCCESS) {
        result = state.begin_free(allocations[begun]);
        if (result == CUDA_SUCCESS) state.end_uncached(allocations[begun++]);
    }
    if (result == CUDA_SUCCESS) result = true_free();
    // The last one first, since it may have ended an object that others are to come back to.
    while (begun > 0) {
        const auto& allocation = allocations[--begun];
        if (result == CUDA_SUCCESS) {
            state.finish_free(allocation);
        } else {
            state.cancel_free(allocation);
        }
    }
    return result;
}

// As free_all(), of the allocation that begins there.
template <class Free>
[[gnu::hot]] CUresult free_object(CUdeviceptr pointer, Free&& true_free) {
    auto& state = coherence();
    if (auto allocation = state.allocation_at(address(pointer))) {
        state.about_to_free(allocation);
        ipc::ended(allocation);
        std::optional<Coherence::Ending> may_come_back;  // if the driver refuses
        if (allocation.object->touched()) may_come_back.emplace(state);
        LaunchInGate in_gate(state.launch_gate());
        const CUresult begun = state.begin_free(allocation);
        if (begun == CUDA_ERROR_OUT_OF_MEMORY) return begun;
        if (begun == CUDA_SUCCESS) state.end_uncached(allocation);
        const CUresult result = true_free();
        if (begun != CUDA_SUCCESS) return result;  // freed by two threads: the driver's answer is the right one
        if (result == CUDA_SUCCESS) {
            state.finish_free(allocation);
            if (call_stacks::on()) wasted::freed(pointer);
        } else {
            state.cancel_free(allocation);
        }
        return result;
    }
    if (!device_owned::any()) return true_free();
    const Coherence::Ending may_come_back(state);
    const LaunchInGate in_gate(state.launch_gate());
    const auto taken = device_owned::take(address(pointer));
    if (!taken.empty()) ipc::ended(address(pointer));
    const CUresult result = true_free();
    if (result != CUDA_SUCCESS) device_owned::put_back(taken);
    return result;
}

template <class C>
[[gnu::hot]] CUresult free_memory(const C& call, CUdeviceptr pointer) {
    return free_object(pointer, [&] { return call(pointer); });
}

// The driver has the kernel pin it.
template <class C>
CUresult register_host(const C& call, void* memory, std::size_t bytes, unsigned flags) {
    unread::open(memory, bytes);
    return call(memory, bytes, flags);
}

// --- queries: the program sees the size it asked for, not a padded one -----------------------------------------------

// 0: the driver knows.
inline std::size_t requested_at(CUdeviceptr pointer) {
    if (const auto allocation = coherence().allocation_of(address(pointer))) return allocation.bytes;
    device_owned::Entry owned;
    return device_owned::any() && device_owned::find(address(pointer), 1, owned) ? owned.requested : 0;
}

template <class C>
CUresult address_range(const C& call, CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
    const CUresult result = call(base, bytes, pointer);
    if (result == CUDA_SUCCESS && bytes != nullptr) {
        if (const auto requested = requested_at(pointer)) *bytes = requested;
    }
    return result;
}

// `several`: the program asked for several attributes at once.
inline CUresult make_truthful(CUresult result, CUpointer_attribute attribute, void* data, CUdeviceptr pointer,
                              bool several) {
    if (result != CUDA_SUCCESS || data == nullptr) return result;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        if (const auto requested = requested_at(pointer)) *static_cast<std::size_t*>(data) = requested;
    }
    const auto allocation = coherence().allocation_of(address(pointer));
    if (!allocation) return result;
    const Object& object = *allocation.object;
    if (!object.accessed_as_context) return result;
    return peers.make_truthful(result, attribute, data, static_cast<CUcontext>(object.context), several);
}

template <class C>
CUresult pointer_attribute(const C& call, void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return make_truthful(call(data, attribute, pointer), attribute, data, pointer, false);
}

template <class C>
CUresult pointer_attributes(const C& call, unsigned count, CUpointer_attribute* attributes, void** data,
                            CUdeviceptr pointer) {
    const CUresult result = call(count, attributes, data, pointer);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
        make_truthful(result, attributes[i], data[i], pointer, true);
    }
    return result;
}

// --- memory that another device or process is about to write ---------------------------------------------------------

inline CUresult hand_over(CUdeviceptr pointer, const char* reason) {
    return coherence().hand_over(address(pointer), reason);
}

// SYNC_MEMOPS is what RDMA libraries set on memory that a network card will access.
template <class C>
CUresult set_pointer_attribute(const C& call, const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    const CUresult result = call(value, attribute, pointer);
    if (result != CUDA_SUCCESS || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return result;
    if (*static_cast<const unsigned*>(value) == 0) return result;
    return hand_over(pointer, "it was prepared for access by other devices (SYNC_MEMOPS)");
}

template <class C>
CUresult export_range(const C& call, void* handle, CUdeviceptr pointer, std::size_t bytes, CUmemRangeHandleType type,
                      unsigned long long flags) {
    const CUresult result = call(handle, pointer, bytes, type, flags);
    return result == CUDA_SUCCESS
               ? coherence().hand_over({address(pointer), bytes}, "it was exported for access by other devices")
               : result;
}

template <class C, class Handle>
CUresult export_object(const C& call, Handle* handle, CUdeviceptr pointer) {
    const CUresult result = call(handle, pointer);
    return result == CUDA_SUCCESS ? hand_over(pointer, "it was exported to another process") : result;
}

// Memory that is not this process's alone.
template <class C, class... A>
CUresult opened(const char* owner, const C& call, CUdeviceptr* pointer, A... rest) {
    const CUresult result = call(pointer, rest...);
    if (result == CUDA_SUCCESS) {
        process::objects_exist(on_fault);
        device_owned::add_opened(address(*pointer), owner);
    }
    return result;
}
template <class C, class... A>
CUresult open_of_process(const C& call, A... arguments) {
    return opened("another process owns it", call, arguments...);
}
template <class C, class... A>
CUresult open_of_api(const C& call, A... arguments) {
    return opened("another API owns it", call, arguments...);
}

template <class C>
CUresult close_ipc(const C& call, CUdeviceptr pointer) {
    const Coherence::Ending may_come_back(coherence());
    const LaunchInGate in_gate(coherence().launch_gate());
    const auto taken = device_owned::take(address(pointer));
    const CUresult result = call(pointer);
    // It may have been opened more than once.
    if (result != CUDA_SUCCESS || device_owned::is_there(address(pointer))) device_owned::put_back(taken);
    return result;
}

}  // namespace hpe::doors
