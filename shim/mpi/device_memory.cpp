// SPDX-License-Identifier: MIT
// A list of what there is, by sizes that are powers of two.
#include "shim/mpi/device_memory.h"

#include <algorithm>
#include <bit>
#include <new>
#include <vector>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::mpi {

namespace {

// Of all contexts.
constexpr std::size_t kMost = std::size_t{512} << 20;

struct Kept {
    std::uintptr_t at;  // 0: not made yet
    std::size_t bytes;
    void* context;
    bool idle;
};
struct All {
    Mutex mutex;
    std::vector<Kept> kept HPE_GUARDED_BY(mutex);
    // One that is idle, or one that is not made yet.
    Kept* find(void* context, std::size_t bytes, bool idle) noexcept HPE_REQUIRES(mutex) {
        const auto found = std::find_if(kept.begin(), kept.end(), [&](const Kept& one) {
            return one.context == context && one.bytes == bytes && one.idle == idle && (idle || one.at == 0);
        });
        return found != kept.end() ? &*found : nullptr;
    }
};
All& all() noexcept {
    static NeverDestroyed<All> list;
    return *list;
}

// An object's address, or 0.
std::uintptr_t allocate(void* context, std::size_t bytes) noexcept try {
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    CUdeviceptr at = 0;
    {
        const Inside inside;
        if (scope.result() != CUDA_SUCCESS || driver.cuMemAlloc_v2(&at, bytes) != CUDA_SUCCESS) return 0;
    }
    coherence().track(at, bytes);
    return coherence().object_at(at) != nullptr ? at : 0;
} catch (const std::bad_alloc&) {
    return 0;
}

}  // namespace

DeviceMemory::DeviceMemory(void* context, std::size_t bytes) noexcept try : context_(context) {
    // Not in a region, whose other allocations the CPU may use.
    const auto size = std::max(std::bit_ceil(bytes), Allocations::kChunk);
    {
        const Locked lock(all().mutex);
        if (Kept* const fitting = all().find(context, size, true); fitting != nullptr) {
            fitting->idle = false;
            at_ = fitting->at;
            return;
        }
        std::size_t sum = size;
        for (const auto& one : all().kept) sum += one.bytes;
        if (sum > kMost) return;
        all().kept.push_back({0, size, context, false});
    }
    // Without the lock, which a context's end takes inside the launch gate: what becomes no object enters the gate.
    const auto made = allocate(context, size);
    const Locked lock(all().mutex);
    Kept* const place = all().find(context, size, false);
    if (place == nullptr) return;  // the context has ended meanwhile
    place->at = at_ = made;
    if (made == 0) all().kept.erase(all().kept.begin() + (place - all().kept.data()));
} catch (const std::bad_alloc&) {
}

DeviceMemory::~DeviceMemory() {
    if (at_ == 0) return;
    const Locked lock(all().mutex);
    for (auto& one : all().kept) one.idle = one.idle || (one.at == at_ && one.context == context_);
}

void DeviceMemory::forget(CUcontext context) noexcept {
    const Locked lock(all().mutex);
    std::erase_if(all().kept, [&](const Kept& one) { return one.context == context; });
}

}  // namespace hpe::mpi
