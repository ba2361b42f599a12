// SPDX-License-Identifier: MIT
// The table of call sites: open addressing, entries are added and never removed.
#include "shim/observe/call_sites.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "shim/observe/output.h"

namespace hpe::call_sites {

namespace {

constexpr unsigned kSlotBits = 11;
constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;
constexpr std::size_t kProbes = 64;

struct Slot {
    std::atomic<std::uintptr_t> address{0};
    std::atomic<std::uint64_t> faults{0}, bytes_to_host{0};
};
constinit std::array<Slot, kSlots> slots;
constinit std::atomic<std::uint64_t> without_slot{0};  // faults
constinit std::atomic<bool> enabled{false};

Slot* slot_of(std::uintptr_t address) noexcept {
    const auto first = static_cast<std::size_t>(address * 0x9E3779B97F4A7C15ull >> (64 - kSlotBits));
    for (std::size_t i = 0; i < kProbes; ++i) {
        Slot& slot = slots[(first + i) % kSlots];
        auto there = slot.address.load(std::memory_order_relaxed);
        if (there == 0 && slot.address.compare_exchange_strong(there, address, std::memory_order_relaxed)) return &slot;
        if (there == address) return &slot;
    }
    return nullptr;
}

void name(Site& site) {
    Dl_info info{};
    link_map* map = nullptr;
    void* const place = &map;
    // A module that the program unloaded has no name any more.
    if (dladdr1(reinterpret_cast<void*>(site.address), &info, static_cast<void**>(place), RTLD_DL_LINKMAP) == 0) return;
    if (map == nullptr) return;
    site.offset = site.address - map->l_addr;
    // For the program itself the loader knows only argv[0].
    site.module = map->l_name[0] == '\0' ? path_of_program() : map->l_name;
    if (info.dli_sname != nullptr) site.symbol = demangled(info.dli_sname);
}

}  // namespace

void enable() noexcept { enabled.store(true, std::memory_order_relaxed); }

void note(std::uintptr_t instruction, std::size_t bytes_to_host) noexcept {
    if (!enabled.load(std::memory_order_relaxed)) return;
    Slot* slot = slot_of(instruction);
    if (slot == nullptr) {
        without_slot.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    slot->faults.fetch_add(1, std::memory_order_relaxed);
    slot->bytes_to_host.fetch_add(bytes_to_host, std::memory_order_relaxed);
}

Most most(std::size_t limit) {
    Most result;
    auto& sites = result.sites;
    for (const auto& slot : slots) {
        Site site;
        site.address = slot.address.load(std::memory_order_relaxed);
        site.faults = slot.faults.load(std::memory_order_relaxed);
        site.bytes_to_host = slot.bytes_to_host.load(std::memory_order_relaxed);
        if (site.faults != 0) sites.push_back(std::move(site));
    }
    std::sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) {
        if (a.bytes_to_host != b.bytes_to_host) return a.bytes_to_host > b.bytes_to_host;
        return a.faults != b.faults ? a.faults > b.faults : a.address < b.address;
    });
    result.faults_elsewhere = without_slot.load(std::memory_order_relaxed);
    while (sites.size() > limit) {
        result.faults_elsewhere += sites.back().faults;
        sites.pop_back();
    }
    for (auto& site : sites) name(site);
    return result;
}

}  // namespace hpe::call_sites
