// SPDX-License-Identifier: MIT
// Doors of stream-ordered allocation (cuMemAllocAsync and its kin): an object each, as cuMemAlloc's. A CPU access waits
// for the allocation as for any device work that was enqueued before it. The free is the driver's, in stream order; the
// CPU may not use the memory after the call, and finds it unmapped.
//
// Padded to whole pages like other objects: a pool of such sizes places all of them at the beginning of a page (seen on
// an H200; an allocation that is not stays on the device). Device-owned: allocations of a captured stream, which exist
// only while their graph runs; memory of another device than the current context's; what is exported to another
// process. The CPU uses memory of managed pools, and of those on the host, without libhpe.
//
// Source: CUDA programming guide, "Stream-ordered memory allocator". Sizes in bytes. Threads, ownership and errors:
// door.h.
#pragma once

#include <atomic>

#include "shim/coherence/device_owned.h"
#include "shim/doors/cuda_memory.h"
#include "shim/doors/door.h"
#include "shim/driver/primary_contexts.h"

namespace hpe::doors {

// The program chose a pool for allocations that name none.
inline constinit std::atomic<bool> pool_chosen{false};

template <class C, class... A>
CUresult choose_pool(const C& call, A... arguments) {
    pool_chosen.store(true, std::memory_order_relaxed);
    return call(arguments...);
}

// Whether what is allocated without naming a pool is memory of the current device: of the only one's own pool.
inline bool only_own_pool() noexcept {
    static const bool one_device = [] {
        int count = 0;
        return driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 1;
    }();
    return one_device && !pool_chosen.load(std::memory_order_relaxed);
}

// Of a stream that was created; nullptr: the current context's, which the driver need not be asked for here.
inline CUcontext context_of(CUstream stream) noexcept {
    CUcontext context = nullptr;
    const bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    return !is_default && driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS ? context : nullptr;
}

// An allocation of a pool, which may be one of another device than the context's, of managed or of host memory.
inline void track_of_pool(CUdeviceptr pointer, std::size_t bytes, CUcontext context) {
    unsigned type = 0, managed = 0;  // the driver may write a byte or four
    int device = -1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void* found[] = {&type, &managed, &device};
    const CUresult asked = driver.cuPointerGetAttributes(3, attributes, found, pointer);
    if (asked == CUDA_SUCCESS && (type != CU_MEMORYTYPE_DEVICE || managed != 0)) return;
    objects_exist();
    if (context == nullptr) context = current_context();
    if (asked != CUDA_SUCCESS) {
        return device_owned::add(address(pointer), bytes, "the driver did not say what memory it is", context);
    }
    CUdevice of_context = -1;
    const ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS && driver.cuCtxGetDevice(&of_context) == CUDA_SUCCESS && of_context == device) {
        coherence().track(address(pointer), bytes, Coherence::Peers::OwnAccess, context);
    } else {
        // In whose context alone it can be copied, unless the pool was opened to others (seen on two H200s).
        CUcontext of_device = nullptr;
        if (primary_context(device, of_device) == CUDA_SUCCESS && of_device != nullptr) context = of_device;
        device_owned::add(address(pointer), bytes, "it was allocated on another device than the current one", context);
    }
}

// `rest`: the pool, if the call names one, and the stream.
template <class C, class... A>
CUresult alloc_async(const C& call, CUdeviceptr* pointer, std::size_t bytes, A... rest) {
    const CUstream stream = stream_of(rest...);
    if (in_flight.capturing(stream, call.flavour)) {
        const CUresult result = call(pointer, bytes, rest...);
        if (result == CUDA_SUCCESS) graph_allocates(*pointer, bytes);
        return result;
    }
    // The stream does the work that makes the memory usable.
    const Touched nothing;
    const auto allocate = [&](std::size_t size) {
        return device_work(
            stream, call.flavour, [] { return CUDA_SUCCESS; }, [&] { return call(pointer, size, rest...); }, &nothing);
    };
    const auto padded = Coherence::padded(bytes);
    if (padded == 0) return allocate(bytes);
    const CUresult result = allocate(padded);
    if (result == CUDA_SUCCESS && sizeof...(rest) == 1 && only_own_pool()) {
        tracking([&] { coherence().track(address(*pointer), bytes, Coherence::Peers::OwnAccess, context_of(stream)); });
    } else if (result == CUDA_SUCCESS) {
        track_of_pool(*pointer, bytes, context_of(stream));
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || padded == bytes) return result;
    return alloc_exactly(pointer, bytes, [&] { return allocate(bytes); });
}

// Memory of cudaMalloc may be freed in stream order, too.
template <class C>
CUresult free_async(const C& call, CUdeviceptr pointer, CUstream stream) {
    return free_object(pointer, [&] { return call(pointer, stream); });
}

}  // namespace hpe::doors
