// SPDX-License-Identifier: MIT
// A sorted map behind one lock.
#include "shim/coherence/device_owned.h"

#include <map>
#include <mutex>

#include "shim/base/mutex.h"

namespace hpe::device_owned {

namespace {
constinit Mutex mutex;
std::map<std::uintptr_t, Entry>& entries() HPE_REQUIRES(mutex) {
    static auto* map = new std::map<std::uintptr_t, Entry>;
    return *map;
}
}  // namespace

void add(std::uintptr_t base, std::size_t size, const char* reason) {
    const Locked lock(mutex);
    entries()[base] = {base, size, reason};
}

void remove(std::uintptr_t base) {
    const Locked lock(mutex);
    entries().erase(base);
}

bool find(std::uintptr_t address, Entry& out) noexcept {
    // This thread may be the one that holds it; its access is on the way to a crash in any case.
    if (!mutex.try_lock()) return false;
    const Locked lock(mutex, std::adopt_lock);
    const auto after = entries().upper_bound(address);
    if (after == entries().begin()) return false;
    const auto& entry = std::prev(after)->second;
    if (address - entry.base >= entry.size) return false;
    out = entry;
    return true;
}

}  // namespace hpe::device_owned
