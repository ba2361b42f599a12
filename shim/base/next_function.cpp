// SPDX-License-Identifier: MIT
// Looking a name up in the libraries behind this one.
#include "shim/base/next_function.h"

#include <link.h>

#include "shim/base/loaded_library.h"

namespace hpe {

void* next_function(const char* name) noexcept {
    // The list is in the order of loading. What the process started with stands first and is never unloaded, and libc,
    // which ends the search, is part of that: no lock is needed.
    const link_map* const first = _r_debug.r_map;
    const link_map* ours = first;
    while (ours != nullptr && ours->l_ld != _DYNAMIC) ours = ours->l_next;
    if (ours == nullptr) return nullptr;
    for (const auto* map = ours->l_next; map != nullptr; map = map->l_next) {
        if (void* function = LoadedLibrary(map->l_addr, map->l_ld).function(name)) return function;
    }
    // Opened by the running program, this library stands behind libc.
    for (const auto* map = first; map != ours; map = map->l_next) {
        if (void* function = LoadedLibrary(map->l_addr, map->l_ld).function(name)) return function;
    }
    return nullptr;
}

}  // namespace hpe
