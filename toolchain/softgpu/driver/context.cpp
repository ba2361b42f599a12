// SPDX-License-Identifier: MIT
// Life of contexts, the per-thread stack of current ones, sticky errors, peer access.
#include "toolchain/softgpu/driver/context.h"

#include <pthread.h>

#include <algorithm>

#include "toolchain/softgpu/driver/array.h"
#include "toolchain/softgpu/driver/capture.h"
#include "toolchain/softgpu/driver/driver.h"
#include "toolchain/softgpu/driver/memory.h"
#include "toolchain/softgpu/driver/module.h"
#include "toolchain/softgpu/driver/stream.h"
#include "toolchain/softgpu/driver/texture_table.h"

namespace hpe::soft {
namespace {

std::atomic<unsigned long long> last_context_id{0};
// A pointer, so that nothing is destroyed behind the back of a call that comes late; the key frees it when the thread
// ends, and that does not happen to the main thread at exit.
thread_local ThreadState* state = nullptr;
pthread_key_t state_key;

void default_limits(std::map<CUlimit, std::size_t>& limits) {
    limits = {{CU_LIMIT_STACK_SIZE, 1024},
              {CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20},
              {CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20},
              {CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2},
              {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
              {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
              {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
}

}  // namespace

std::mutex& context_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
}

void make_thread_key() {
    pthread_key_create(&state_key, [](void* p) {
        state = nullptr;
        if (life() == Life::Ready) delete static_cast<ThreadState*>(p);
    });
}

ThreadState& thread_state() {
    if (!state) {
        state = new ThreadState;
        pthread_setspecific(state_key, state);
    }
    return *state;
}

ThreadState::~ThreadState() {
    for (auto& [id, stream] : streams) {
        leave_capture(*stream);
        retire(*stream);
    }
}

Context::Context(Device& device, bool is_primary) : primary(is_primary), device_(device) { default_limits(limits); }

void Context::revive() {
    id_ = ++last_context_id;
    ending_ = false;
    legacy = std::make_shared<Stream>(*this, Stream::Kind::Legacy, 0u, 0);
    default_limits(limits);
    alive_ = true;
}

void Context::break_with(CUresult error) {
    CUresult none = CUDA_SUCCESS;
    device_.broken.compare_exchange_strong(none, error);
}

CUresult Context::sticky() const { return device_.broken.load(std::memory_order_acquire); }

void Context::check() const {
    require(alive(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    require(sticky() == CUDA_SUCCESS, sticky());
}

bool Context::may_reach(const Context& other) const {
    const std::shared_lock lock(peers_mutex_);
    return peers_.contains(&other);
}

void Context::enable_peer(Context& other) {
    const std::unique_lock lock(peers_mutex_);
    require(peers_.insert(&other).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

void Context::disable_peer(Context& other) {
    const std::unique_lock lock(peers_mutex_);
    require(peers_.erase(&other) > 0, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

std::vector<TaskRef> Context::all_tails() const {
    std::erase_if(orphans, [](const Orphan& orphan) { return orphan.task->done(); });
    std::vector<TaskRef> tails;
    for (const Orphan& orphan : orphans) tails.push_back(orphan.task);
    if (legacy && legacy->tail) tails.push_back(legacy->tail);
    for (const Stream* stream : streams)
        if (stream->tail) tails.push_back(stream->tail);
    return tails;
}

void Context::synchronize() {
    std::vector<TaskRef> tails;
    {
        const std::lock_guard lock(driver().order);
        tails = all_tails();
    }
    driver().engine.wait(tails);
    require(sticky() == CUDA_SUCCESS, sticky());
}

void Context::destroy() {
    alive_ = false;
    ending_ = true;  // endless waits on memory values give up
    std::vector<TaskRef> tails;
    {
        const std::lock_guard lock(driver().order);
        tails = all_tails();
    }
    driver().engine.wait(tails);
    const auto gone = driver().streams.remove_if([this](const Stream& s) { return &s.context == this; });
    for (const auto& stream : gone) leave_capture(*stream);
    forget_modules(*this);
    forget_arrays(*this);
    driver().textures.forget(*this);
    {
        const std::lock_guard lock(driver().order);
        streams.clear();
        orphans.clear();
        if (legacy) legacy->tail.reset();
    }
    free_everything(*this);
    // Access to this context ends with it: one that lives again at this address must be enabled again.
    driver().contexts.each([this](Context& other) {
        const std::unique_lock lock(other.peers_mutex_);
        if (&other == this)
            peers_.clear();
        else
            other.peers_.erase(this);
    });
}

Context* current_or_null() {
    if (!state || state->stack.empty()) return nullptr;
    return state->stack.back();
}

Context& current() {
    Context* context = current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    context->check();
    return *context;
}

Context& context_of(CUcontext handle) {
    const auto context = driver().contexts.find(handle);
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return *context;
}

namespace {

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
    context.revive();
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
    context.destroy();
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
    if (device.primary->references++ == 0) device.primary->revive();
    *pctx = device.primary->handle();
    return CUDA_SUCCESS;
}

CUresult api::cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    Device& device = device_at(dev);
    const std::lock_guard lock(context_mutex());
    require(device.primary && device.primary->references > 0, CUDA_ERROR_INVALID_CONTEXT);
    if (--device.primary->references == 0) device.primary->destroy();
    return CUDA_SUCCESS;
}
CUresult api::cuDevicePrimaryCtxRelease(CUdevice dev) { return api::cuDevicePrimaryCtxRelease_v2(dev); }

CUresult api::cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    Device& device = device_at(dev);
    const std::lock_guard lock(context_mutex());
    if (!device.primary || device.primary->references == 0) return CUDA_SUCCESS;
    device.primary->references = 0;
    device.primary->destroy();
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
    context.synchronize();
    return CUDA_SUCCESS;
}
CUresult api::cuCtxSynchronize_v2(CUcontext ctx) {
    if (!ctx) return api::cuCtxSynchronize();
    Context& context = context_of(ctx);
    context.check();
    forbid_while_capturing(context);
    context.synchronize();
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
