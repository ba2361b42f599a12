// SPDX-License-Identifier: MIT
// The driver functions of streams.
#include <algorithm>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

constexpr int least_priority = 0, greatest_priority = -5;

}  // namespace

CUresult api::cuStreamCreateWithPriority(CUstream* phStream, unsigned flags, int priority) {
    require(phStream != nullptr && (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) == 0);
    Context& context = current();
    priority = std::max(greatest_priority, std::min(least_priority, priority));
    auto stream = std::make_shared<Stream>(context, Stream::Kind::Created, flags, priority);
    *phStream = stream->handle();
    {
        const std::lock_guard lock(driver().order);
        context.streams.insert(stream.get());
    }
    driver().streams.add(std::move(stream));
    return CUDA_SUCCESS;
}

CUresult api::cuStreamCreate(CUstream* phStream, unsigned flags) {
    return api::cuStreamCreateWithPriority(phStream, flags, 0);
}

CUresult api::cuStreamDestroy_v2(CUstream handle) {
    require(handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD,
            CUDA_ERROR_INVALID_HANDLE);
    const auto stream = driver().streams.remove(handle);
    require(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
    leave_capture(*stream);
    retire(*stream);
    return stream->context.sticky();  // it is gone all the same
}
CUresult api::cuStreamDestroy(CUstream handle) { return api::cuStreamDestroy_v2(handle); }

CUresult api::cuStreamSynchronize(CUstream handle) {
    const auto stream = stream_of(handle);
    forbid_capturing(*stream);
    forbid_unsafe_call();  // whichever stream is being captured
    synchronize(*stream);
    return CUDA_SUCCESS;
}

CUresult api::cuStreamQuery(CUstream handle) {
    const auto stream = stream_of(handle);
    forbid_capturing(*stream);
    forbid_unsafe_call();
    {
        const std::lock_guard lock(driver().order);
        if (!predecessors(*stream).empty()) return CUDA_ERROR_NOT_READY;
    }
    stream->context.check();
    return CUDA_SUCCESS;
}

// As an H200's driver: of a captured stream some answers end its capture, and of the legacy stream all.
static std::shared_ptr<Stream> stream_to_ask(CUstream handle) {
    auto stream = stream_of(handle);
    forbid_capturing(*stream);
    return stream;
}
static std::shared_ptr<Stream> stream_to_ask_even_captured(CUstream handle) {
    auto stream = stream_of(handle);
    forbid_implicit_sync(*stream);
    return stream;
}

CUresult api::cuStreamGetFlags(CUstream handle, unsigned* flags) {
    require(flags != nullptr);
    *flags = stream_to_ask(handle)->flags;
    return CUDA_SUCCESS;
}

CUresult api::cuStreamGetPriority(CUstream handle, int* priority) {
    require(priority != nullptr);
    *priority = stream_to_ask_even_captured(handle)->priority;
    return CUDA_SUCCESS;
}

CUresult api::cuStreamGetId(CUstream handle, unsigned long long* id) {
    require(id != nullptr);
    *id = stream_to_ask(handle)->id;
    return CUDA_SUCCESS;
}

CUresult api::cuStreamGetDevice(CUstream handle, CUdevice* device) {
    require(device != nullptr);
    *device = stream_to_ask(handle)->context.device().ordinal;
    return CUDA_SUCCESS;
}

CUresult api::cuStreamGetCtx(CUstream handle, CUcontext* pctx) {
    require(pctx != nullptr);
    *pctx = stream_to_ask_even_captured(handle)->context.handle();
    return CUDA_SUCCESS;
}
CUresult api::cuStreamGetCtx_v2(CUstream handle, CUcontext* pctx, CUgreenCtx* green) {
    require(pctx != nullptr && green != nullptr);
    *pctx = stream_to_ask_even_captured(handle)->context.handle();
    *green = nullptr;
    return CUDA_SUCCESS;
}
CUresult api::cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green) {
    require(green != nullptr);
    stream_of(handle);
    *green = nullptr;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    current();
    if (least) *least = least_priority;
    if (greatest) *greatest = greatest_priority;
    return CUDA_SUCCESS;
}

CUresult api::cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
    require(value != nullptr);
    const auto stream = stream_of(handle);
    *value = {};
    switch (attribute) {
        case CU_LAUNCH_ATTRIBUTE_PRIORITY: value->priority = stream->priority; return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: value->syncPolicy = CU_SYNC_POLICY_AUTO; return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult api::cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
    require(value != nullptr);
    const auto stream = stream_of(handle);
    switch (attribute) {
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            stream->priority = std::max(greatest_priority, std::min(least_priority, value->priority));
            return CUDA_SUCCESS;
        // Hints about caches and waiting that change no result.
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            require(value->syncPolicy >= CU_SYNC_POLICY_AUTO && value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC);
            return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult api::cuStreamCopyAttributes(CUstream destination, CUstream source) {
    const auto to = stream_of(destination), from = stream_of(source);
    to->priority = from->priority;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
