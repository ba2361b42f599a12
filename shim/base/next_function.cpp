// SPDX-License-Identifier: MIT
// Looking a name up in the dynamic sections of loaded libraries.
#include "shim/base/next_function.h"

#include <link.h>

#include <cstdint>
#include <cstring>

namespace hpe {

namespace {

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
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) return nullptr;
    if (std::strcmp(library.strings + symbol.st_name, name) != 0) return nullptr;
    return reinterpret_cast<void*>(library.base + symbol.st_value);
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

struct Search {
    const char* name;
    bool behind_us = false;
    void* found = nullptr;
};

int look_into(dl_phdr_info* info, std::size_t, void* data) noexcept {
    auto& search = *static_cast<Search*>(data);
    const auto here = reinterpret_cast<ElfW(Addr)>(&next_function);
    const ElfW(Dyn)* dynamic = nullptr;
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        const auto begin = info->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && here - begin < segment.p_memsz) ours = true;
        if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(begin);
    }
    if (!search.behind_us || ours || dynamic == nullptr) {
        search.behind_us = search.behind_us || ours;
        return 0;
    }
    const auto library = library_at(info->dlpi_addr, dynamic);
    if (library.symbols == nullptr || library.strings == nullptr) return 0;
    if (library.gnu_hash != nullptr) {
        search.found = find_by_gnu_hash(library, search.name);
    } else if (library.hash != nullptr) {
        search.found = find_one_by_one(library, search.name);
    }
    return search.found != nullptr ? 1 : 0;
}

}  // namespace

void* next_function(const char* name) noexcept {
    Search search{name};
    dl_iterate_phdr(look_into, &search);
    return search.found;
}

}  // namespace hpe
