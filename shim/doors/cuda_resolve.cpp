// SPDX-License-Identifier: MIT
// How programs find the driver, and how they find our doors instead: dlsym and dlvsym on a libcuda handle,
// cuGetProcAddress, and the names that libhpe.so exports itself for programs linked with libcuda.
//
// Only an exact name that was really found in libcuda is answered. The pointer that cuGetProcAddress returns is the
// exported function (docs/hardware.md), so one table from true pointer to wrapper serves both, in the program's own ABI
// version and default-stream flavour; an unknown pointer passes through.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "shim/doors/door.h"
#include "shim/doors/mpi_imports.h"
#include "shim/process/signals.h"

namespace hpe::doors {

namespace {

// True pointer to door: the places of doors plus one, by open addressing, 0: none. Without a lock: each thread that
// comes before it is filled fills it, since one that waited could hold the loader's lock, which another needs for that.
constexpr std::size_t kSlots = 4096;
constinit std::array<std::atomic<std::uint32_t>, kSlots> by_pointer;
constinit std::atomic<bool> filled{false};

std::size_t slot_of(const void* pointer) noexcept {
    return (reinterpret_cast<std::uintptr_t>(pointer) >> 4) * 0x9E3779B97F4A7C15ull >> (64 - 12);
}

const DoorEntry* find_by_name(const char* name) noexcept {
    const auto* end = door_table + door_count;
    const auto* found = std::lower_bound(door_table, end, name, [](const DoorEntry& door, const char* wanted) {
        return std::strcmp(door.name, wanted) < 0;
    });
    return found != end && std::strcmp(found->name, name) == 0 ? found : nullptr;
}

// Questions that take no time, and that the CUDA runtime asks in every call: not for the timeline.
bool only_asks(std::string_view name) noexcept {
    const auto begins = [&](std::string_view with) { return name.substr(0, with.size()) == with; };
    return begins("cuCtxGet") || begins("cuDeviceGet") || begins("cuGetError");
}

// Names the functions that the program called and no row of the catalogue covers.
void say_passed_through() {
    if (!log::enabled(log::Level::Debug)) return;
    for (std::size_t i = 0; i < door_count; ++i) {
        const auto calls = door_calls[i].load(std::memory_order_relaxed);
        if (calls != 0) {
            log::debug("{} passed through {} times{}", door_table[i].name, calls,
                       door_table[i].catalogued ? "" : " (in no catalogue row)");
        }
    }
}

void* real_of(std::uint32_t place) noexcept { return door_real[place - 1].load(std::memory_order_relaxed); }

// Of two names of one function the wrapped one counts.
void enter(std::uint32_t place, void* real) noexcept {
    for (auto at = slot_of(real);;) {
        auto there = by_pointer[at].load(std::memory_order_acquire);
        if (there != 0 && real_of(there) != real) {
            at = (at + 1) % kSlots;
            continue;
        }
        if (there != 0 && !door_table[place - 1].treated) return;
        if (by_pointer[at].compare_exchange_strong(there, place, std::memory_order_release)) return;
    }
}

void fill(void* handle) noexcept {
    if (filled.load(std::memory_order_acquire)) return;
    for (std::uint32_t i = 0; i < door_count; ++i) {
        void* real = real_dlsym(handle, door_table[i].name);
        // Our own export would be found if the handle were not libcuda's.
        if (real == nullptr || real == door_table[i].wrapper) continue;
        door_real[i].store(real, std::memory_order_relaxed);
        enter(i + 1, real);
    }
    process::at_exit(say_passed_through);
    filled.store(true, std::memory_order_release);
}

// Adopts the driver behind a handle. False when it is no libcuda, or another one than before.
bool adopt(void* handle) noexcept {
    if (!adopt_driver(handle)) return false;
    fill(libcuda());
    return true;
}

}  // namespace

void* find_real(std::size_t index) noexcept {
    void* handle = libcuda();
    if (handle == nullptr) return nullptr;
    fill(handle);
    return door_real[index].load(std::memory_order_relaxed);
}

void* door_for(void* real) noexcept {
    // Another thread, whose first call has come to a door that was found already, may still be looking.
    if (void* const handle = libcuda()) fill(handle);
    for (auto at = slot_of(real);; at = (at + 1) % kSlots) {
        const auto there = by_pointer[at].load(std::memory_order_acquire);
        if (there == 0) return real;
        if (real_of(there) != real) continue;
        const auto& door = door_table[there - 1];
        if (door.treated || log::enabled(log::Level::Debug)) return door.wrapper;
        return trace::on() && !only_asks(door.name) ? door.wrapper : real;
    }
}

bool unsettled_passes_through() noexcept {
    const bool active =
        process::active.load(std::memory_order_relaxed) || (this_thread.inside == 0 && linked_first_use());
    if (active && !this_thread.settled) signals::settle_thread();
    if (this_thread.inside != 0 || !active) return true;
    return !std::exchange(this_thread.reentered, false) && recording();
}

bool linked_first_use() noexcept { return process::undecided() && libcuda() != nullptr && process::first_use(); }

}  // namespace hpe::doors

using namespace hpe;
using namespace hpe::doors;

namespace {

// The stub returns nullptr for it; dlerror() has its reason from the last search.
void* const kNothing = reinterpret_cast<void*>(1);

const link_map* map_of(const void* address) noexcept {
    Dl_info info{};
    link_map* map = nullptr;
    void* place = &map;
    return dladdr1(address, &info, static_cast<void**>(place), RTLD_DL_LINKMAP) != 0 ? map : nullptr;
}
// UCX follows what is allocated by jumps that it writes over the functions it finds, as far as it knows their code: the
// driver's. Where it cannot, it asks the driver about every address, and keeps nothing that it has registered.
bool writes_over_functions(const void* caller) noexcept {
    Dl_info info{};
    if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
    const std::string_view path = info.dli_fname;
    const auto name = path.substr(path.rfind('/') + 1);
    return name.substr(0, 6) == "libucm";
}

// In the order of loading, which is the order of the global search.
bool comes_before(const link_map* first, const link_map* second) noexcept {
    for (const auto* map = first != nullptr ? first->l_next : nullptr; map != nullptr; map = map->l_next) {
        if (map == second) return true;
    }
    return false;
}

// A global search (RTLD_DEFAULT, RTLD_NEXT) comes by our own exports first, which are there even without a driver.
// nullptr: no concern of ours.
void* global_answer(void* handle, const DoorEntry& door, const void* caller) noexcept {
    if (handle == RTLD_DEFAULT) {
        // A library loaded before us, or the program itself, is found as without us.
        void* first = real_dlsym(RTLD_DEFAULT, door.name);
        if (first != nullptr && door.treated && first != door.wrapper) return nullptr;
    } else if (!comes_before(map_of(caller), map_of(&door_count))) {
        return nullptr;
    }
    void* const driver_handle = libcuda();
    void* const real = driver_handle != nullptr ? real_dlsym(driver_handle, door.name) : nullptr;
    void* const behind_us = real_dlsym(RTLD_NEXT, door.name);
    // Another library's function of that name, or none at all.
    if (behind_us != nullptr && behind_us != real) return behind_us;
    if (real == nullptr) return door.treated ? kNothing : nullptr;
    if (!adopt(driver_handle) || !process::first_use()) return nullptr;
    return door_for(real);
}

// The door of that name, if it is the program that asks.
const DoorEntry* wanted_door(const char* name) noexcept {
    if (name == nullptr || name[0] != 'c' || name[1] != 'u' || this_thread.inside != 0) return nullptr;
    return find_by_name(name);
}

// For a function found in a driver's handle: its door, or nullptr if it has none.
void* handle_answer(void* handle, void* real) noexcept {
    if (real == nullptr || !adopt(handle) || !process::first_use()) return nullptr;
    dlerror();  // our own searches are not the program's
    void* answer = door_for(real);
    return answer == real ? nullptr : answer;
}

}  // namespace

// Called by the stub in dlsym.S with the program's arguments. Returns what dlsym shall return, kNothing for nullptr, or
// nullptr: then the stub jumps to the real one.
extern "C" __attribute__((visibility("hidden"))) void* hpe_dlsym_answer(void* handle, const char* name,
                                                                        const void* caller) noexcept {
    prepare_real_dlsym();  // the stub jumps there
    const DoorEntry* door = wanted_door(name);
    // What a program asks for may lie in a library that it has just opened.
    if (door == nullptr) return name != nullptr ? mpi_imports::answer(handle, name, caller) : nullptr;
    if (writes_over_functions(caller)) {
        void* const real = real_dlsym(handle, name);
        void* const driver_handle = real == door->wrapper ? libcuda() : nullptr;
        return driver_handle != nullptr ? real_dlsym(driver_handle, name) : nullptr;
    }
    void* const real = handle != RTLD_DEFAULT && handle != RTLD_NEXT ? real_dlsym(handle, name) : nullptr;
    // The global scope has a handle, too: dlopen(nullptr).
    const bool global = real != nullptr && door->treated && real == door->wrapper;
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || global) {
        void* answer = global_answer(global ? RTLD_DEFAULT : handle, *door, caller);
        if (answer != nullptr && answer != kNothing) dlerror();  // our own searches are not the program's
        return answer;
    }
    return handle_answer(handle, real);
}

// The same for dlvsym. A search for a version never comes by our own exports, which have none.
extern "C" __attribute__((visibility("hidden"))) void* hpe_dlvsym_answer(void* handle, const char* name,
                                                                         const char* version,
                                                                         const void* caller) noexcept {
    prepare_real_dlsym();
    const DoorEntry* door = wanted_door(name);
    if (door == nullptr || version == nullptr) return nullptr;
    if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) {
        return handle_answer(handle, real_dlvsym(handle, name, version));
    }
    void* const driver_handle = libcuda();
    if (driver_handle == nullptr) return nullptr;
    if (handle == RTLD_NEXT && !comes_before(map_of(caller), map_of(&door_count))) return nullptr;
    void* const real = real_dlvsym(driver_handle, name, version);
    // Another library's function of that name, or one that only the driver's own handle reaches.
    if (real_dlvsym(handle, name, version) != real) return nullptr;
    return handle_answer(driver_handle, real);
}
