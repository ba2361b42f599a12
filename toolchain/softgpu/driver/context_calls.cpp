// SPDX-License-Identifier: MIT
// How contexts come and go, and which one a thread uses: the driver functions of contexts and primary contexts.
#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/array.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/module/library.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

void begin_life(Context& context) { context.begin(std::make_shared<Stream>(context, Stream::Kind::Legacy, 0u, 0)); }

// Waits for the work in flight, then frees everything.
void end_life(Context& context) {
    context.end();
    std::vector<TaskRef> tails;
    {
        const std::lock_guard lock(driver().order);
        tails = all_tails(context);
    }
    driver().engine.wait(tails);
    const auto gone = driver().streams.remove_if([&](const Stream& s) { return &s.context == &context; });
    for (const auto& stream : gone) leave_capture(*stream);
    forget_modules(context);
    forget_arrays(context);
    driver().textures.forget(context);
    {
        const std::lock_guard lock(driver().order);
        context.streams.clear();
        context.orphans.clear();
        if (context.legacy) context.legacy->tail.reset();
    }
    free_everything(context);
    context.forget_peers();
}

Context& make_context(Device& device, bool primary) {
    auto context = std::make_shared<Context>(device, primary);
    driver().contexts.add(context);
    return *context;
}

void check_available(Device& device) {
    require(device.broken == CUDA_SUCCESS, device.broken);
    require(device.memory.open(), CUDA_ERROR_OUT_OF_MEMORY);
}

constexpr unsigned known_context_flags = CU_CTX_FLAGS_MASK;

void check_flags(unsigned flags) {
    require((flags & ~known_context_flags) == 0);
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    require(schedule == 0 || (schedule & (schedule - 1)) == 0);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice ordinal, unsigned version) {
    require(out != nullptr);
    check_flags(flags);
    Device& device = device_at(ordinal);
    check_available(device);
    Context& context = make_context(device, false);
    context.flags = flags;
    context.api_version = version;
    begin_life(context);
    thread_state().stack.push_back(&context);
    *out = context.handle();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuCtxCreate(CUcontext* pctx, unsigned flags, CUdevice dev) { return create(pctx, flags, dev, 2000); }
CUresult api::cuCtxCreate_v2(CUcontext* pctx, unsigned flags, CUdevice dev) { return create(pctx, flags, dev, 3020); }
CUresult api::cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned flags, CUdevice dev) {
    if (numParams != 0) return not_supported("cuCtxCreate_v3 with an execution affinity");
    return create(pctx, flags, dev, 3020);
}
CUresult api::cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* params, unsigned flags, CUdevice dev) {
    if (params && (params->numExecAffinityParams != 0 || params->cigParams))
        return not_supported("cuCtxCreate_v4 with an execution affinity or a graphics interface");
    return create(pctx, flags, dev, 3020);
}

CUresult api::cuCtxDestroy_v2(CUcontext ctx) {
    require(ctx != nullptr);
    Context& context = context_of(ctx);
    require(!context.primary, CUDA_ERROR_INVALID_CONTEXT);
    require(context.alive(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    auto& stack = thread_state().stack;
    if (!stack.empty() && stack.back() == &context) stack.pop_back();
    end_life(context);
    return CUDA_SUCCESS;
}
CUresult api::cuCtxDestroy(CUcontext ctx) { return api::cuCtxDestroy_v2(ctx); }

CUresult api::cuCtxPushCurrent_v2(CUcontext ctx) {
    require(ctx != nullptr);
    Context& context = context_of(ctx);  // may be dead: what is done in it fails
    thread_state().stack.push_back(&context);
    return CUDA_SUCCESS;
}
CUresult api::cuCtxPushCurrent(CUcontext ctx) { return api::cuCtxPushCurrent_v2(ctx); }

CUresult api::cuCtxPopCurrent_v2(CUcontext* pctx) {
    auto& stack = thread_state().stack;
    require(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (pctx) *pctx = stack.back()->handle();
    stack.pop_back();
    return CUDA_SUCCESS;
}
CUresult api::cuCtxPopCurrent(CUcontext* pctx) { return api::cuCtxPopCurrent_v2(pctx); }

CUresult api::cuCtxSetCurrent(CUcontext ctx) {
    auto& stack = thread_state().stack;
    if (!ctx) {
        if (!stack.empty()) stack.pop_back();
        return CUDA_SUCCESS;
    }
    Context& context = context_of(ctx);
    if (stack.empty())
        stack.push_back(&context);
    else
        stack.back() = &context;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCurrent(CUcontext* pctx) {
    require(pctx != nullptr);
    Context* context = current_or_null();
    *pctx = context ? context->handle() : nullptr;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetDevice(CUdevice* device) {
    require(device != nullptr);
    Context* context = current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device().ordinal;
    return CUDA_SUCCESS;
}
CUresult api::cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
    if (!ctx) return api::cuCtxGetDevice(device);
    require(device != nullptr);
    *device = context_of(ctx).device().ordinal;
    return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
    require(pctx != nullptr);
    Device& device = device_at(dev);
    const std::lock_guard lock(context_mutex());
    check_available(device);
    if (!device.primary) device.primary = &make_context(device, true);
    if (device.primary->references++ == 0) begin_life(*device.primary);
    *pctx = device.primary->handle();
    return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    Device& device = device_at(dev);
    const std::lock_guard lock(context_mutex());
    require(device.primary && device.primary->references > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--device.primary->references == 0) end_life(*device.primary);
    return CUDA_SUCCESS;
}
CUresult api::cuDevicePrimaryCtxRelease(CUdevice dev) { return api::cuDevicePrimaryCtxRelease_v2(dev); }

CUresult api::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    Device& device = device_at(dev);
    const std::lock_guard lock(context_mutex());
    if (!device.primary || device.primary->references == 0) return CUDA_SUCCESS;
    device.primary->references = 0;
    end_life(*device.primary);
    return CUDA_SUCCESS;
}
CUresult api::cuDevicePrimaryCtxReset(CUdevice dev) { return api::cuDevicePrimaryCtxReset_v2(dev); }

CUresult api::cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
    Device& device = device_at(dev);
    check_flags(flags);
    const std::lock_guard lock(context_mutex());
    if (!device.primary) device.primary = &make_context(device, true);
    device.primary->flags = flags;
    return CUDA_SUCCESS;
}
CUresult api::cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) {
    return api::cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult api::cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
    Device& device = device_at(dev);
    require(flags && active);
    const std::lock_guard lock(context_mutex());
    *flags = device.primary ? device.primary->flags : 0;
    *active = device.primary && device.primary->references > 0;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxSynchronize() {
    Context& context = current();
    forbid_while_capturing(context);
    synchronize(context);
    return CUDA_SUCCESS;
}
CUresult api::cuCtxSynchronize_v2(CUcontext ctx) {
    if (!ctx) return api::cuCtxSynchronize();
    Context& context = context_of(ctx);
    context.check();
    forbid_while_capturing(context);
    synchronize(context);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
