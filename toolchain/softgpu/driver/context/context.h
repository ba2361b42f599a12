// SPDX-License-Identifier: MIT
// Contexts, primary and created (CUDA Driver API, "Context Management" and "Primary Context Management"). How they come
// and go: context_calls.cpp.
//
// A context is the registry's and is never freed. Threads: any, but for what a lock is named for. Errors: exceptions of
// type Error (call.h).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/device/addresses.h"
#include "toolchain/softgpu/driver/device/device_heap.h"
#include "toolchain/softgpu/driver/device/engine.h"
#include "toolchain/softgpu/driver/device/small_heap.h"

namespace hpe::soft {

class Device;
class Stream;

// Contexts are few and their objects are never freed, so that whatever still points to one can look at it safely.
class Context {
public:
    Context(Device& device, bool is_primary);

    Device& device() const { return device_; }
    CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
    bool alive() const { return alive_.load(std::memory_order_acquire); }
    // Life number: a primary context that is reset and retained again is a new context at the old address.
    unsigned long long id() const { return id_; }

    // The error that a kernel left behind. It breaks every context of the device, for the rest of the process.
    CUresult sticky() const;
    void break_with(CUresult error);
    void check() const;  // throws when dead or broken

    bool may_reach(const Context& other) const;  // peer access
    void enable_peer(Context& other);
    void disable_peer(Context& other);

    // A life begins, with this legacy default stream.
    void begin(std::shared_ptr<Stream> legacy_stream);
    void end();  // dead from now on, and the work in flight should come to its end
    // Access to this context ends with it: one that lives again at this address must be enabled again.
    void forget_peers();
    bool ending() const { return ending_.load(std::memory_order_acquire); }

    const bool primary;
    unsigned flags = 0, api_version = 13000;
    unsigned references = 0;  // primary: retained so often. Guarded by context_mutex()
    SmallHeap heap;
    SmallHeap variables;     // of modules and arrays: apart, so that what cuMemAlloc gives starts as on hardware
    DeviceHeap device_heap;  // of kernels
    std::shared_ptr<Stream> legacy;
    // Guarded by the order lock.
    std::set<Stream*> streams;  // but the legacy one
    struct Orphan {
        TaskRef task;  // last work of a destroyed stream
        bool blocking;
    };
    mutable std::vector<Orphan> orphans;
    CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
    CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    std::map<CUlimit, std::size_t> limits;

private:
    Device& device_;
    std::atomic<bool> alive_{false}, ending_{false};
    std::atomic<unsigned long long> id_{0};
    mutable std::shared_mutex peers_mutex_;
    std::set<const Context*> peers_;
};

std::mutex& context_mutex();

Context& context_of(CUcontext handle);  // throws INVALID_CONTEXT

}  // namespace hpe::soft
