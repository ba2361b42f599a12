// SPDX-License-Identifier: MIT
// Stream-ordered allocation: cuMemAllocAsync and cuMemFreeAsync.
//
// An address is handed out when the call is made, and its memory is taken back when the stream reaches the free. So
// memory is never used twice before its first use is over, whatever the streams do.
#include <vector>

#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/memory/pending_frees.h"
#include "toolchain/softgpu/driver/memory/pool.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {
namespace {

// Stream-ordered free.
struct FreeOp {
    std::uint64_t address = 0;
    std::uint64_t id = 0;  // of the allocation
};
CUresult run(Context&, const FreeOp& operation) {
    const AllocationRef there = driver().addresses.find(operation.address);
    if (there && there->address == operation.address && there->id == operation.id)
        if (const auto removed = driver().addresses.remove(operation.address)) end_allocation(*removed);
    finish_free(operation.id);
    return CUDA_SUCCESS;
}

// An allocation in a stream that is being captured is one of the graph's. False: the stream is not.
bool capture_allocation(Stream& stream, const MemoryPool& pool, std::size_t bytes, CUdeviceptr* out) {
    const std::lock_guard lock(driver().order);
    const auto capture = capture_for_work(stream);
    if (!capture) return false;
    CUDA_MEM_ALLOC_NODE_PARAMS p{};
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool.device.ordinal};
    p.bytesize = bytes;
    std::vector<CUmemAccessDesc> access;
    {
        const std::lock_guard pool_lock(pool.mutex);
        for (const int peer : pool.peers)
            access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, peer}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    }
    p.accessDescs = access.data();
    p.accessDescCount = access.size();
    *out = capture->add_allocation(stream, p);
    return true;
}

bool capture_free(Stream& stream, CUdeviceptr address) {
    const std::lock_guard lock(driver().order);
    const auto capture = capture_for_work(stream);
    if (!capture) return false;
    capture->add_free(stream, address);
    return true;
}

CUresult allocate(CUdeviceptr* out, std::size_t bytes, MemoryPool* wanted, CUstream handle) {
    require(out != nullptr);
    const auto stream = stream_of(handle);
    const auto pool = wanted ? pool_of(wanted->handle()) : current_pool(stream->context.device());
    if (bytes == 0) {
        *out = 0;
        return CUDA_SUCCESS;
    }
    if (capture_allocation(*stream, *pool, bytes, out)) return CUDA_SUCCESS;
    require(!pool->file);  // a pool of another process
    require(pool->device.memory.open(), CUDA_ERROR_OUT_OF_MEMORY);
    std::uint64_t address = pool->allocate(pool, stream->context, bytes);
    if (!address) {
        // Frees that are on their way may be enough.
        if (any_free_is_pending()) {
            synchronize(stream->context);
            address = pool->allocate(pool, stream->context, bytes);
        }
    }
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    *out = address;
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
    return allocate(dptr, bytesize, nullptr, hStream);
}

CUresult api::cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return allocate(dptr, bytesize, pool_of(pool).get(), hStream);
}

CUresult api::cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    const auto stream = stream_of(hStream);
    if (dptr == 0) return CUDA_SUCCESS;
    if (capture_free(*stream, dptr)) return CUDA_SUCCESS;
    const AllocationRef a = driver().addresses.find(dptr);
    if (a && a->address == dptr && a->kind == Kind::Graph) {
        const std::lock_guard lock(driver().order);
        a->backing->free_in_stream(*a, *stream);
        return CUDA_SUCCESS;
    }
    require(a && a->address == dptr && !a->module_variable);
    require(a->kind != Kind::Managed, CUDA_ERROR_NOT_SUPPORTED);
    require(a->kind == Kind::Pool || a->kind == Kind::Device);
    require(begin_free(*a));
    submit(*stream, FreeOp{dptr, a->id});
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
