// SPDX-License-Identifier: MIT
// A sorted map behind one lock.
#include "shim/coherence/device_owned.h"

#include <map>
#include <mutex>

namespace hpe::device_owned {

namespace {
constinit std::mutex mutex;
std::map<std::uintptr_t, Entry>& entries() {
    static auto* map = new std::map<std::uintptr_t, Entry>;
    return *map;
}
}  // namespace

void add(std::uintptr_t base, std::size_t size, const char* reason) {
    std::scoped_lock lock(mutex);
    entries()[base] = {base, size, reason};
}

void remove(std::uintptr_t base) {
    std::scoped_lock lock(mutex);
    entries().erase(base);
}

bool find(std::uintptr_t address, Entry& out) noexcept {
    // This thread may be the one that holds it; its access is on the way to a crash in any case.
    std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    const auto after = entries().upper_bound(address);
    if (after == entries().begin()) return false;
    const auto& entry = std::prev(after)->second;
    if (address - entry.base >= entry.size) return false;
    out = entry;
    return true;
}

}  // namespace hpe::device_owned
