// SPDX-License-Identifier: MIT
// What programs ask about a context and set in it: flags, limits, preferences.
#include <algorithm>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

Context& live_context(CUcontext handle) {
    Context& context = handle ? context_of(handle) : current();
    require(context.alive(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return context;
}

constexpr std::size_t local_memory_per_thread = 512 << 10;
// What smaller and larger wishes become, as an H200 has it.
constexpr std::size_t least_printf_bytes = 512 << 10, most_printf_bytes = std::size_t{2} << 30;
constexpr std::size_t least_heap_bytes = 4 << 20;
constexpr std::size_t least_pending_launches = 32;

}  // namespace

CUresult api::cuCtxGetFlags(unsigned* flags) {
    require(flags != nullptr);
    Context* context = current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    require(context->alive(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    // Also of a broken one; a primary one always maps host memory.
    *flags = context->flags | (context->primary ? unsigned{CU_CTX_MAP_HOST} : 0u);
    return CUDA_SUCCESS;
}

CUresult api::cuCtxSetFlags(unsigned flags) {
    require((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0);
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    require((schedule & (schedule - 1)) == 0);
    current().flags = flags;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
    require(ctxId != nullptr);
    *ctxId = live_context(ctx).id();
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetApiVersion(CUcontext ctx, unsigned* version) {
    require(version != nullptr);
    require(!ctx || context_of(ctx).alive(), CUDA_ERROR_INVALID_CONTEXT);
    *version = live_context(ctx).api_version;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetLimit(size_t* value, CUlimit limit) {
    require(value != nullptr && limit >= 0 && limit < CU_LIMIT_MAX);
    Context& context = current();
    switch (limit) {
        case CU_LIMIT_SHMEM_SIZE: *value = capability().shared_per_block_optin; return CUDA_SUCCESS;
        case CU_LIMIT_CIG_ENABLED: *value = 0; return CUDA_SUCCESS;
        case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
            if (capability().number >= 90) return CUDA_ERROR_UNSUPPORTED_LIMIT;
            break;
        default: break;
    }
    const std::lock_guard lock(driver().order);
    const auto at = context.limits.find(limit);
    require(at != context.limits.end(), CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = at->second;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxSetLimit(CUlimit limit, size_t value) {
    require(limit >= 0 && limit < CU_LIMIT_MAX);
    Context& context = current();
    forbid_unsafe_call();
    switch (limit) {
        case CU_LIMIT_STACK_SIZE:
            require(value <= local_memory_per_thread);
            value = round_up(value, 16);
            break;
        case CU_LIMIT_PRINTF_FIFO_SIZE: value = std::clamp(value, least_printf_bytes, most_printf_bytes); break;
        case CU_LIMIT_MALLOC_HEAP_SIZE:
            require(value <= context.device().memory.capacity(), CUDA_ERROR_OUT_OF_MEMORY);
            // The heap does not grow once kernels have memory of it.
            require(!context.device_heap.made());
            value = std::max(value, least_heap_bytes);
            break;
        case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: value = std::max(value, least_pending_launches); break;
        case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: require(value <= 128); break;
        case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: value = 0; break;  // the device has none to set aside
        case CU_LIMIT_SHMEM_SIZE:
        case CU_LIMIT_CIG_ENABLED: return CUDA_ERROR_NOT_PERMITTED;
        default: return CUDA_ERROR_UNSUPPORTED_LIMIT;  // from 9.0 on, the depth of device-side waiting too
    }
    const std::lock_guard lock(driver().order);
    context.limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCacheConfig(CUfunc_cache* config) {
    require(config != nullptr);
    Context& context = current();
    const std::lock_guard lock(driver().order);
    *config = context.cache_config;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxSetCacheConfig(CUfunc_cache config) {
    require(config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL);
    Context& context = current();
    const std::lock_guard lock(driver().order);
    context.cache_config = config;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetSharedMemConfig(CUsharedconfig* config) {
    require(config != nullptr);
    current();
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;  // the hardware has had no other since 5.0
    return CUDA_SUCCESS;
}

CUresult api::cuCtxSetSharedMemConfig(CUsharedconfig config) {
    require(config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    Context& context = current();
    const std::lock_guard lock(driver().order);
    context.shared_config = config;
    return CUDA_SUCCESS;
}

CUresult api::cuCtxResetPersistingL2Cache() {
    current();
    return CUDA_SUCCESS;
}

CUresult api::cuCtxGetExecAffinity(CUexecAffinityParam* affinity, CUexecAffinityType type) {
    require(affinity != nullptr);
    current();
    require(type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    *affinity = {};
    affinity->type = type;
    affinity->param.smCount.val = multiprocessors;
    return CUDA_SUCCESS;
}

// The oldest way to share a context: counted uses of the current one.
CUresult api::cuCtxAttach(CUcontext* pctx, unsigned flags) {
    require(pctx != nullptr && flags == 0);
    Context& context = current();
    require(!context.primary, CUDA_ERROR_INVALID_CONTEXT);
    const std::lock_guard lock(context_mutex());
    ++context.references;
    *pctx = context.handle();
    return CUDA_SUCCESS;
}

CUresult api::cuCtxDetach(CUcontext ctx) {
    Context& context = context_of(ctx);
    require(&context == current_or_null() && context.alive() && !context.primary, CUDA_ERROR_INVALID_CONTEXT);
    {
        const std::lock_guard lock(context_mutex());
        if (context.references > 0) {
            --context.references;
            return CUDA_SUCCESS;
        }
    }
    return api::cuCtxDestroy_v2(ctx);
}

}  // namespace hpe::soft
