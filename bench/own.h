// SPDX-License-Identifier: MIT
// A function of the driver twice: as programs are given it (libhpe's door, when it is preloaded), and the driver's own.
// Calls of both in turn within one process tell what libhpe adds: from one process to the next the same call differs by
// more than that. Without libhpe both are one function: the control.
//
// The functions belong to the driver, which is never closed. Errors: exit with status 1.
#pragma once

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

template <class Function>
struct Twice {
    Function given, own;
};

// The definition in libcuda's own symbol table, which no preloaded library can answer for.
inline void* own_function(void* libcuda, const char* name) {
    link_map* map = nullptr;
    if (dlinfo(libcuda, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
        if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    }
    if (symbols == nullptr || names == nullptr) return nullptr;
    // The string table follows the symbols in every linker's layout.
    for (const ElfW(Sym)* symbol = symbols; reinterpret_cast<const char*>(symbol) < names; ++symbol) {
        if (symbol->st_value != 0 && std::strcmp(names + symbol->st_name, name) == 0) {
            return reinterpret_cast<void*>(map->l_addr + symbol->st_value);
        }
    }
    return nullptr;
}

template <class Function>
Twice<Function> find_twice(const char* name) {
    void* libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    const Twice<Function> found{reinterpret_cast<Function>(dlsym(libcuda, name)),
                                reinterpret_cast<Function>(own_function(libcuda, name))};
    if (found.given == nullptr || found.own == nullptr) {
        std::fprintf(stderr, "%s is not in libcuda\n", name);
        std::exit(1);
    }
    return found;
}
