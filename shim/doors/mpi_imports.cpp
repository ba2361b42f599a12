// SPDX-License-Identifier: MIT
// Finding the MPI library, and the slots that lead to it.
#include "shim/doors/mpi_imports.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>

#include "shim/base/active.h"
#include "shim/base/kernel.h"
#include "shim/base/loaded_library.h"
#include "shim/base/log.h"
#include "shim/base/next_function.h"
#include "shim/driver/driver.h"
#include "shim/observe/unread.h"

namespace hpe::doors::mpi_imports {

HPE_READ_OFTEN constinit std::atomic<std::uint64_t> looked_at{0};

namespace {

// An MPI's binary interface, with the library that has it in this process.
struct Mpi {
    const char* name;
    bool (*is)(std::string_view soname);
    mpi::Library (*built)() noexcept = nullptr;  // nullptr: libhpe was built without it
    std::optional<mpi::Library> doors{};
    bool usable = false;                // it has all that the doors need
    std::uintptr_t begin = 0, end = 0;  // of the library; 0: there is none
    const link_map* map = nullptr;
    bool has(const void* function) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(function);
        return at >= begin && at < end;
    }
};

bool is_openmpi(std::string_view soname) { return soname == "libmpi.so.40"; }
// libmpi.so.12, libmpi_cray.so.12, Debian's libmpich.so.12.
bool is_mpich(std::string_view soname) { return soname.starts_with("libmpi") && soname.ends_with(".so.12"); }
// Of whatever MPI.
bool is_standard(std::string_view soname) { return soname == "libmpi_abi.so.1"; }

constinit Mpi all[] = {
    {"Open MPI", is_openmpi,
#ifdef HPE_MPI_OPENMPI
     openmpi::library
#endif
    },
    {"MPICH", is_mpich,
#ifdef HPE_MPI_MPICH
     mpich::library
#endif
    },
    {"standard MPI (libmpi_abi.so.1)", is_standard,
#ifdef HPE_MPI_STANDARD
     standard::library
#endif
    },
};

// Before libc and sanitizers are ready nobody may look.
constinit std::atomic<bool> ready{false};
constinit std::atomic<bool> any_mpi{false}, unknown_mpi{false};
// Of the loader's list: how many libraries it has had, how many were taken away, and how many of it were looked at. One
// that another thread is about to load may have been found before its slots were filled.
constinit unsigned long long seen_adds = 0, seen_subs = 0;
constinit std::size_t seen = 0;
constinit bool unfilled = false;

constinit Next<decltype(::dl_iterate_phdr)> iterate{"dl_iterate_phdr"};

const ElfW(Dyn) * dynamic_of(const dl_phdr_info& info) noexcept {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
            return reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
        }
    }
    return nullptr;
}

std::uintptr_t end_of(const dl_phdr_info& info) noexcept {
    std::uintptr_t end = 0;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const auto& part = info.dlpi_phdr[i];
        if (part.p_type == PT_LOAD) end = std::max<std::uintptr_t>(end, info.dlpi_addr + part.p_vaddr + part.p_memsz);
    }
    return end;
}
std::uintptr_t begin_of(const dl_phdr_info& info) noexcept {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        if (info.dlpi_phdr[i].p_type == PT_LOAD) return info.dlpi_addr + info.dlpi_phdr[i].p_vaddr;
    }
    return info.dlpi_addr;
}

// The first definition in the order of loading, which is that of the global search, up to and with the MPI library.
// Under the loader's lock.
template <class Find>
void* first_definition(const Mpi& mpi, Find&& find) noexcept {
    for (const auto* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
        if (void* found = find(LoadedLibrary(map->l_addr, map->l_ld))) return found;
        if (map == mpi.map) break;
    }
    return nullptr;
}

const mpi::Door* door_of(const mpi::Library& library, const char* name) noexcept {
    if (name[0] == 'P') ++name;
    const auto at = std::lower_bound(
        library.by_name.begin(), library.by_name.end(), name,
        [&](auto place, const char* wanted) { return std::strcmp(library.doors[place].name, wanted) < 0; });
    if (at == library.by_name.end()) return nullptr;
    const auto& door = library.doors[*at];
    return std::strcmp(door.name, name) == 0 && *door.real != nullptr ? &door : nullptr;
}

// The MPI library has come: what is behind its doors.
void adopt(Mpi& mpi, const dl_phdr_info& info, const LoadedLibrary& library) noexcept {
    mpi.begin = begin_of(info);
    mpi.end = end_of(info);
    mpi.map = nullptr;
    for (const auto* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
        if (map->l_addr == info.dlpi_addr && map->l_ld == dynamic_of(info)) mpi.map = map;
    }
    mpi.usable = false;
    if (mpi.built == nullptr) return;
    if (!mpi.doors) mpi.doors = mpi.built();
    for (const auto& symbol : mpi.doors->symbols) {
        *symbol.place = symbol.function
                            ? library.function(symbol.name)
                            : first_definition(mpi, [&](const LoadedLibrary& in) { return in.variable(symbol.name); });
        if (*symbol.place != nullptr || symbol.optional) continue;
        log::warn("the {} library has no {}: its calls with device memory are passed on as they are", mpi.name,
                  symbol.name);
        return;
    }
    for (const auto& door : mpi.doors->doors) *door.real = library.function(door.name);
    mpi.usable = true;
}

class Patch {
public:
    explicit Patch(const dl_phdr_info& info) noexcept : begin_(begin_of(info)), end_(end_of(info)) {
        for (int i = 0; i < info.dlpi_phnum; ++i) {
            const auto& part = info.dlpi_phdr[i];
            const auto begin = info.dlpi_addr + part.p_vaddr;
            // As the loader closes it: whole pages.
            if (part.p_type == PT_GNU_RELRO) {
                closed_begin_ = begin & ~std::uintptr_t{kPage - 1};
                closed_end_ = (begin + part.p_memsz) & ~std::uintptr_t{kPage - 1};
            }
            if (part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0 && writable_ == 0) {
                writable_ = begin;
                writable_end_ = begin + part.p_memsz;
            }
        }
    }
    // Slots through which `mpi` is called. Returns whether all were filled by the loader.
    bool slots(const LoadedLibrary& library, const Mpi& mpi) const noexcept {
        bool filled = true;
        library.for_slots([&](const LoadedLibrary::Slot& slot) {
            if (!may_be_mpi(slot.name)) return;
            const auto* const door = door_of(*mpi.doors, slot.name);
            if (door == nullptr) return;
            void* const leads_to = __atomic_load_n(slot.place, __ATOMIC_RELAXED);
            const auto at = reinterpret_cast<std::uintptr_t>(leads_to);
            if (leads_to == door->door) return;
            const bool to_loader = slot.is_call && at >= begin_ && at < end_;
            if (to_loader ? !tool_has(mpi, slot.name) : mpi.has(leads_to)) write(slot.place, door->door);
            // As it stands in the file: an offset, or nothing.
            if (!to_loader && at < end_ - begin_ && !slot.weak) filled = false;
        });
        return filled;
    }

private:
    static constexpr std::uintptr_t kPage = 4096;
    // Whether the loader would find another's function of that name.
    static bool tool_has(const Mpi& mpi, const char* name) noexcept {
        return !mpi.has(first_definition(mpi, [&](const LoadedLibrary& in) { return in.function(name); }));
    }
    void write(void** place, void* door) const noexcept {
        const auto at = reinterpret_cast<std::uintptr_t>(place);
        if (at < writable_ || at >= writable_end_) return;
        const auto page = at & ~(kPage - 1);
        const bool closed = at >= closed_begin_ && at < closed_end_;
        if (closed && kernel::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE) != 0) return;
        __atomic_store_n(place, door, __ATOMIC_RELEASE);
        if (closed) kernel::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ);
    }

    const std::uintptr_t begin_, end_;
    std::uintptr_t closed_begin_ = 0, closed_end_ = 0, writable_ = 0, writable_end_ = 0;
};

// Calls `body` under the loader's lock, which is recursive: meanwhile the list of libraries stays as it is.
template <class Body>
void locked(Body&& body) noexcept {
    iterate(
        [](dl_phdr_info* first, std::size_t, void* data) {
            (*static_cast<std::remove_reference_t<Body>*>(data))(*first);
            return 1;
        },
        &body);
}
// The libraries from the `first` on.
template <class Visit>
void for_libraries(std::size_t first, Visit&& visit) noexcept {
    struct Pass {
        Visit& visit;
        const std::size_t first;
        std::size_t index;
    } pass{visit, first, 0};
    iterate(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& in = *static_cast<Pass*>(data);
            const auto* const dynamic = in.index >= in.first ? dynamic_of(*info) : nullptr;
            if (dynamic != nullptr) in.visit(in.index, *info, LoadedLibrary(info->dlpi_addr, dynamic));
            ++in.index;
            return 0;
        },
        &pass);
}

// Under the loader's lock.
void look_at(const dl_phdr_info& now) noexcept {
    const bool some_went = now.dlpi_subs != seen_subs;
    if (now.dlpi_adds == seen_adds && !some_went && !unfilled) return;
    // Where some were taken away, others may stand in their places.
    if (some_went) seen = 0;
    bool found = false, there[std::size(all)] = {};
    for_libraries(seen, [&](std::size_t, const dl_phdr_info& info, const LoadedLibrary& library) {
        const std::string_view soname = library.soname();
        if (!soname.starts_with("libmpi") || library.function("PMPI_Init") == nullptr) return;
        bool known = false;
        for (auto& mpi : all) {
            if (!mpi.is(soname)) continue;
            known = there[&mpi - all] = true;
            if (mpi.begin == begin_of(info)) continue;
            adopt(mpi, info, library);
            found = true;
        }
        if (!known) unknown_mpi.store(true, std::memory_order_relaxed);
    });
    for (auto& mpi : all) {
        if (some_went && !there[&mpi - all]) mpi.begin = mpi.end = 0, mpi.usable = false;
    }
    std::size_t count = 0, first_unfilled = ~std::size_t{0};
    for_libraries(0, [&](std::size_t index, const dl_phdr_info& info, const LoadedLibrary& library) {
        count = index + 1;
        if (index < seen && !found) return;
        for (const auto& mpi : all) {
            if (!mpi.usable || mpi.begin == begin_of(info)) continue;
            if (!Patch(info).slots(library, mpi)) first_unfilled = std::min(first_unfilled, index);
        }
    });
    unfilled = first_unfilled < count;
    seen = std::min(first_unfilled, count);
    seen_adds = now.dlpi_adds;
    seen_subs = now.dlpi_subs;
    if (found) any_mpi.store(true, std::memory_order_release);
    if (found || unknown_mpi.load(std::memory_order_relaxed)) unread::give_up();
}

// The next definition behind the library of the caller. Under the loader's lock.
void* next_behind(const void* caller, const char* name) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(caller);
    bool behind = false;
    void* found = nullptr;
    for_libraries(0, [&](std::size_t, const dl_phdr_info& info, const LoadedLibrary& library) {
        if (behind && found == nullptr) found = library.function(name);
        behind = behind || (at >= begin_of(info) && at < end_of(info));
    });
    return found;
}

// A library that was opened for itself alone sees its own dependencies, too.
void* in_scope_of(const void* caller, const char* name) noexcept {
    Dl_info info{};
    if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return nullptr;
    void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return nullptr;
    void* const found = real_dlsym(library, name);
    dlclose(library);
    return found;
}

__attribute__((constructor)) void start() {
    ready.store(true, std::memory_order_release);
    look();
}

}  // namespace

void look() noexcept {
    // In a namespace of its own (dlmopen, LD_AUDIT) it finds nothing behind it.
    if (ready.load(std::memory_order_acquire) && iterate.exists())
        locked([](const dl_phdr_info& first) { look_at(first); });
}

void objects_exist() noexcept {
    look();
    static constinit std::atomic<bool> said{false};
    for (const auto& mpi : all) {
        if (mpi.begin == 0 || mpi.built != nullptr || said.exchange(true)) continue;
        log::warn("libhpe was built without {}: its calls with device memory are passed on as they are", mpi.name);
    }
    if (unknown_mpi.load(std::memory_order_relaxed) && !said.exchange(true)) {
        log::warn("libhpe does not know this MPI: its calls with device memory are passed on as they are");
    }
}

void* answer(void* handle, const char* name, const void* caller) noexcept {
    const bool of_mpi = may_be_mpi(name);
    // Any search may follow the loading of a library that uses MPI. To look takes a lock of the loader's, which a
    // forked child may not get.
    if (of_mpi || process::active.load(std::memory_order_relaxed)) look();
    if (!of_mpi || !any_mpi.load(std::memory_order_acquire)) return nullptr;
    void* real = nullptr;
    if (handle == RTLD_NEXT) {
        locked([&](const dl_phdr_info&) { real = next_behind(caller, name); });
    } else {
        real = real_dlsym(handle, name);
        if (real == nullptr && handle == RTLD_DEFAULT) real = in_scope_of(caller, name);
    }
    for (const auto& mpi : all) {
        if (real == nullptr || !mpi.usable || !mpi.has(real)) continue;
        if (const auto* door = door_of(*mpi.doors, name)) {
            dlerror();  // our own searches are not the program's
            return door->door;
        }
    }
    return nullptr;
}

}  // namespace hpe::doors::mpi_imports
