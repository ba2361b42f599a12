// SPDX-License-Identifier: MIT
// A sorted map behind one lock.
#include "shim/coherence/device_owned.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <optional>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/uncached.h"
#include "shim/driver/driver.h"

namespace hpe::device_owned {

HPE_READ_OFTEN constinit Flag any_of_graph{false};

namespace {

// Outside the fault path the lock is taken with signals blocked: a handler of the program may access such memory.
// Memory is allocated and freed without it, since the handler may have interrupted malloc.
using Entries = std::map<std::uintptr_t, Entry>;
struct Table {
    SpinLock lock;
    Entries entries HPE_GUARDED_BY(lock);
};
Table& table() {
    static NeverDestroyed<Table> all;
    return *all;
}
// All that was ever added lies between: most ranges that are asked for do not.
constinit std::atomic<std::uintptr_t> lowest{UINTPTR_MAX}, highest{0};

// The first that has a byte at the address or behind it.
Entries::iterator first_at(Entries& all, std::uintptr_t address) noexcept {
    auto at = all.upper_bound(address);
    const bool reaches = at != all.begin() && std::prev(at)->first + std::prev(at)->second.size > address;
    return reaches ? std::prev(at) : at;
}

void add(const Entry& entry) {
    coherence().look_at(entry.base, entry.size);
    Entries made{{entry.base, entry}}, gone;
    auto& [lock, all] = table();
    const SignalsBlocked blocked;
    const Locked locked(lock);
    // Of what was there nothing is left.
    auto at = first_at(all, entry.base);
    while (at != all.end() && at->first < entry.base + entry.size) gone.insert(all.extract(at++));
    all.insert(made.extract(made.begin()));
    lowest.store(std::min(lowest.load(), entry.base));
    highest.store(std::max(highest.load(), entry.base + entry.size));
    changes.fetch_add(1, std::memory_order_release);
    count.store(all.size(), std::memory_order_release);
}

// Of those that have bytes of the range.
template <class Gone>
Entries remove_if(std::uintptr_t begin, std::size_t bytes, Gone&& is_gone) {
    Entries gone;
    if (!any()) return gone;
    auto& [lock, all] = table();
    const SignalsBlocked blocked;
    const Locked locked(lock);
    auto at = first_at(all, begin);
    while (at != all.end() && at->first < begin + bytes) {
        const auto next = std::next(at);
        if (is_gone(at->second)) gone.insert(all.extract(at));
        at = next;
    }
    changes.fetch_add(1, std::memory_order_release);
    count.store(all.size(), std::memory_order_release);
    return gone;
}

Entries removed(std::uintptr_t base) {
    return remove_if(base, 1, [base](const Entry& entry) { return entry.base == base && !entry.of_graph; });
}

std::vector<Entry> listed(const Entries& entries) {
    std::vector<Entry> list;
    for (const auto& [base, entry] : entries) list.push_back(entry);
    return list;
}

bool within(const Entry& entry, std::uintptr_t begin, std::size_t bytes) noexcept {
    return entry.base >= begin && entry.base + entry.size <= begin + bytes;
}

}  // namespace

void add(std::uintptr_t base, std::size_t size, const char* reason) { add(base, size, reason, current_context()); }

void add(std::uintptr_t base, std::size_t size, const char* reason, CUcontext context, std::size_t requested) {
    add({base, size, reason, context, false, false, requested});
}

void add_of_graph(std::uintptr_t base, std::size_t size) {
    any_of_graph.store(true, std::memory_order_release);
    add({base, size, "allocations of graphs are not shared", current_context(), true});
}

void add_opened(std::uintptr_t base, const char* reason) {
    CUdeviceptr begin = 0;
    std::size_t size = 0;
    const auto result = driver.cuMemGetAddressRange_v2(&begin, &size, base);
    const bool known = result == CUDA_SUCCESS && begin <= base && base - begin < size;
    add(base, known ? size - (base - begin) : 1, reason);
}

bool is_there(std::uintptr_t base) noexcept {
    CUdeviceptr begin = 0;
    return driver.cuMemGetAddressRange_v2(&begin, nullptr, base) == CUDA_SUCCESS;
}

void remove(std::uintptr_t base) { removed(base); }

std::vector<Entry> take(std::uintptr_t base) {
    const auto taken = listed(removed(base));
    uncached::let_step_end();
    return taken;
}

std::vector<Entry> take(CUcontext context) {
    const auto taken = listed(remove_if(0, UINTPTR_MAX, [&](const Entry& entry) { return entry.context == context; }));
    uncached::let_step_end();
    return taken;
}

void put_back(std::span<const Entry> entries) {
    for (const auto& entry : entries) add(entry);
}

void remove_within(std::uintptr_t begin, std::size_t bytes) {
    remove_if(begin, bytes, [&](const Entry& entry) { return within(entry, begin, bytes); });
}

void remove_those_of_graphs(std::uintptr_t begin, std::size_t bytes) {
    remove_if(begin, bytes, [](const Entry& entry) { return entry.of_graph; });
}

void make_read_only(std::uintptr_t begin, std::size_t bytes) {
    auto& [lock, all] = table();
    const SignalsBlocked blocked;
    const Locked locked(lock);
    for (auto at = all.lower_bound(begin); at != all.end() && at->first < begin + bytes; ++at) {
        at->second.read_only = at->second.read_only || within(at->second, begin, bytes);
    }
}

std::size_t overlapping(std::uintptr_t begin, std::size_t bytes, std::span<Entry> out) noexcept {
    if (!any() || begin >= highest.load() || begin + bytes <= lowest.load()) return 0;
    std::optional<SignalsBlocked> blocked;
    if (!this_thread.in_fault) blocked.emplace();
    auto& [lock, all] = table();
    const Locked locked(lock);
    std::size_t found = 0;
    for (auto at = first_at(all, begin); at != all.end() && at->first < begin + bytes && found < out.size(); ++at) {
        out[found++] = at->second;
    }
    return found;
}

}  // namespace hpe::device_owned
