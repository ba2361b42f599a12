// SPDX-License-Identifier: MIT
// Sticky errors, peer access, handles.
#include "toolchain/softgpu/driver/context/context.h"

#include <utility>

#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

std::atomic<unsigned long long> last_context_id{0};
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

Context::Context(Device& device, bool is_primary) : primary(is_primary), device_(device) { default_limits(limits); }

void Context::begin(std::shared_ptr<Stream> legacy_stream) {
    id_ = ++last_context_id;
    ending_ = false;
    legacy = std::move(legacy_stream);
    default_limits(limits);
    alive_ = true;
}

void Context::end() {
    alive_ = false;
    ending_ = true;  // endless waits on memory values give up
}

void Context::forget_peers() {
    driver().contexts.each([this](Context& other) {
        const std::unique_lock lock(other.peers_mutex_);
        if (&other == this)
            peers_.clear();
        else
            other.peers_.erase(this);
    });
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

Context& context_of(CUcontext handle) {
    const auto context = driver().contexts.find(handle);
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return *context;
}

}  // namespace hpe::soft
