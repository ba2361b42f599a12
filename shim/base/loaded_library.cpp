// SPDX-License-Identifier: MIT
// Reading dynamic sections.
#include "shim/base/loaded_library.h"

namespace hpe {

bool same_name(const char* a, const char* b) noexcept {
    for (; *a == *b; ++a, ++b) {
        if (*a == '\0') return true;
    }
    return false;
}

LoadedLibrary::LoadedLibrary(ElfW(Addr) base, const ElfW(Dyn) * dynamic) noexcept : base_(base) {
    std::size_t soname = 0, call_bytes = 0, data_bytes = 0;
    const ElfW(Rela)* calls = nullptr, *data = nullptr;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
        // The loader turned offsets into addresses, except where it could not write (the vDSO).
        const auto pointer = dynamic->d_un.d_ptr < base ? base + dynamic->d_un.d_ptr : dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
            case DT_SYMTAB: symbols_ = reinterpret_cast<const ElfW(Sym)*>(pointer); break;
            case DT_STRTAB: strings_ = reinterpret_cast<const char*>(pointer); break;
            case DT_GNU_HASH: gnu_hash_ = reinterpret_cast<const std::uint32_t*>(pointer); break;
            case DT_HASH: hash_ = reinterpret_cast<const std::uint32_t*>(pointer); break;
            case DT_SONAME: soname = dynamic->d_un.d_val; break;
            case DT_JMPREL: calls = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
            case DT_PLTRELSZ: call_bytes = dynamic->d_un.d_val; break;
            case DT_RELA: data = reinterpret_cast<const ElfW(Rela)*>(pointer); break;
            case DT_RELASZ: data_bytes = dynamic->d_un.d_val; break;
            default: break;
        }
    }
    if (symbols_ == nullptr || strings_ == nullptr) return;
    if (soname != 0) soname_ = strings_ + soname;
    if (calls != nullptr) calls_ = {calls, call_bytes / sizeof *calls};
    if (data != nullptr) data_ = {data, data_bytes / sizeof *data};
}

void* LoadedLibrary::at(std::uint32_t index, const char* name, unsigned type) const noexcept {
    const auto& symbol = symbols_[index];
    const unsigned is = ELF64_ST_TYPE(symbol.st_info);
    const bool chosen = is == STT_GNU_IFUNC && type == STT_FUNC;
    if (symbol.st_shndx == SHN_UNDEF || (is != type && !chosen)) return nullptr;
    if (!same_name(strings_ + symbol.st_name, name)) return nullptr;
    const auto address = base_ + symbol.st_value;
    // One of several functions, for this processor: libc's memcpy.
    if (chosen) return reinterpret_cast<void* (*)()>(address)();
    return reinterpret_cast<void*>(address);
}

// Header: number of buckets, first symbol in the table, words of the filter, its shift. Chains end with an odd value.
void* LoadedLibrary::find_by_gnu_hash(const char* name, unsigned type) const noexcept {
    std::uint32_t wanted = 5381;
    for (const char* c = name; *c != '\0'; ++c) wanted = wanted * 33 + static_cast<unsigned char>(*c);
    const auto* table = gnu_hash_;
    const auto buckets = table[0], first = table[1], filter_words = table[2];
    if (buckets == 0) return nullptr;
    const auto* bucket = table + 4 + std::size_t{filter_words} * (sizeof(ElfW(Addr)) / sizeof *table);
    const auto* chain = bucket + buckets;
    auto index = bucket[wanted % buckets];
    if (index < first) return nullptr;
    for (;; ++index) {
        const auto hash = chain[index - first];
        if ((hash | 1) == (wanted | 1)) {
            if (void* found = at(index, name, type)) return found;
        }
        if ((hash & 1) != 0) return nullptr;
    }
}

// Header: number of buckets, number of symbols. So few libraries have only this one that all symbols are looked at.
void* LoadedLibrary::find_one_by_one(const char* name, unsigned type) const noexcept {
    for (std::uint32_t index = 0; index < hash_[1]; ++index) {
        if (void* found = at(index, name, type)) return found;
    }
    return nullptr;
}

void* LoadedLibrary::defined(const char* name, unsigned type) const noexcept {
    if (symbols_ == nullptr || strings_ == nullptr) return nullptr;
    if (gnu_hash_ != nullptr) return find_by_gnu_hash(name, type);
    return hash_ != nullptr ? find_one_by_one(name, type) : nullptr;
}

}  // namespace hpe
