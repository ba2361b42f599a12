// SPDX-License-Identifier: MIT
// The frees that are on their way.
#include "toolchain/softgpu/driver/memory/pending_frees.h"

#include <mutex>
#include <unordered_set>

#include "toolchain/softgpu/driver/device/addresses.h"

namespace hpe::soft {
namespace {

struct PendingFrees {
    std::mutex mutex;
    std::unordered_set<std::uint64_t> ids;
};
PendingFrees& pending() {
    static auto* frees = new PendingFrees;
    return *frees;
}
}  // namespace

bool begin_free(const Allocation& allocation) {
    const std::lock_guard lock(pending().mutex);
    return pending().ids.insert(allocation.id).second;
}
void finish_free(std::uint64_t id) {
    const std::lock_guard lock(pending().mutex);
    pending().ids.erase(id);
}
bool free_is_pending(const Allocation& allocation) {
    const std::lock_guard lock(pending().mutex);
    return pending().ids.contains(allocation.id);
}
bool any_free_is_pending() {
    const std::lock_guard lock(pending().mutex);
    return !pending().ids.empty();
}

}  // namespace hpe::soft
