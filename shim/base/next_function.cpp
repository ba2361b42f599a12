// SPDX-License-Identifier: MIT
// Looking a name up in the dynamic sections of loaded libraries.
#include "shim/base/next_function.h"

#include <link.h>

#include <cstddef>
#include <cstdint>

namespace hpe {

namespace {

// Not strcmp: a sanitizer's own may stand in front of libc's and not be ready yet.
bool equal(const char* a, const char* b) noexcept {
    for (; *a == *b; ++a, ++b) {
        if (*a == '\0') return true;
    }
    return false;
}

struct Library {
    ElfW(Addr) base = 0;
    const ElfW(Sym) * symbols = nullptr;
    const char* strings = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const std::uint32_t* hash = nullptr;
};

Library library_at(ElfW(Addr) base, const ElfW(Dyn) * dynamic) noexcept {
    Library library;
    library.base = base;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
        // The loader turned offsets into addresses, except where it could not write (the vDSO).
        const auto pointer = dynamic->d_un.d_ptr < base ? base + dynamic->d_un.d_ptr : dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
            case DT_SYMTAB: library.symbols = reinterpret_cast<const ElfW(Sym)*>(pointer); break;
            case DT_STRTAB: library.strings = reinterpret_cast<const char*>(pointer); break;
            case DT_GNU_HASH: library.gnu_hash = reinterpret_cast<const std::uint32_t*>(pointer); break;
            case DT_HASH: library.hash = reinterpret_cast<const std::uint32_t*>(pointer); break;
            default: break;
        }
    }
    return library;
}

void* function_at(const Library& library, std::uint32_t index, const char* name) noexcept {
    const auto& symbol = library.symbols[index];
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC)) return nullptr;
    if (!equal(library.strings + symbol.st_name, name)) return nullptr;
    const auto address = library.base + symbol.st_value;
    // One of several functions, for this processor: libc's memcpy.
    if (type == STT_GNU_IFUNC) return reinterpret_cast<void* (*)()>(address)();
    return reinterpret_cast<void*>(address);
}

// Header: number of buckets, first symbol in the table, words of the filter, its shift. Chains end with an odd value.
void* find_by_gnu_hash(const Library& library, const char* name) noexcept {
    std::uint32_t wanted = 5381;
    for (const char* c = name; *c != '\0'; ++c) wanted = wanted * 33 + static_cast<unsigned char>(*c);
    const auto* table = library.gnu_hash;
    const auto buckets = table[0], first = table[1], filter_words = table[2];
    if (buckets == 0) return nullptr;
    const auto* bucket = table + 4 + std::size_t{filter_words} * (sizeof(ElfW(Addr)) / sizeof *table);
    const auto* chain = bucket + buckets;
    auto index = bucket[wanted % buckets];
    if (index < first) return nullptr;
    for (;; ++index) {
        const auto hash = chain[index - first];
        if ((hash | 1) == (wanted | 1)) {
            if (void* function = function_at(library, index, name)) return function;
        }
        if ((hash & 1) != 0) return nullptr;
    }
}

// Header: number of buckets, number of symbols. So few libraries have only this one that all symbols are looked at.
void* find_one_by_one(const Library& library, const char* name) noexcept {
    for (std::uint32_t index = 0; index < library.hash[1]; ++index) {
        if (void* function = function_at(library, index, name)) return function;
    }
    return nullptr;
}

void* defined_in(const link_map& map, const char* name) noexcept {
    const auto library = library_at(map.l_addr, map.l_ld);
    if (library.symbols == nullptr || library.strings == nullptr) return nullptr;
    if (library.gnu_hash != nullptr) return find_by_gnu_hash(library, name);
    return library.hash != nullptr ? find_one_by_one(library, name) : nullptr;
}

}  // namespace

void* next_function(const char* name) noexcept {
    // The list is in the order of loading. What the process started with stands first and is never unloaded, and libc,
    // which ends the search, is part of that: no lock is needed.
    const link_map* const first = _r_debug.r_map;
    const link_map* ours = first;
    while (ours != nullptr && ours->l_ld != _DYNAMIC) ours = ours->l_next;
    if (ours == nullptr) return nullptr;
    for (const auto* map = ours->l_next; map != nullptr; map = map->l_next) {
        if (void* function = defined_in(*map, name)) return function;
    }
    // Opened by the running program, this library stands behind libc.
    for (const auto* map = first; map != ours; map = map->l_next) {
        if (void* function = defined_in(*map, name)) return function;
    }
    return nullptr;
}

}  // namespace hpe
