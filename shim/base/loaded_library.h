// SPDX-License-Identifier: MIT
// What a loaded library's dynamic section tells: the symbols it defines, and the places that hold what its own calls
// lead to (System V ABI, chapter 5; the hash table is GNU's, or the ABI's where there is none).
//
// Names are looked up without libc: sanitizers do so before their own functions work, and theirs stand in front of
// libc's. Pointers belong to the library. Threads: any, while the library stays loaded. Errors: nullptr where there is
// no such symbol.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace hpe {

class LoadedLibrary {
public:
    LoadedLibrary(ElfW(Addr) base, const ElfW(Dyn) * dynamic) noexcept;

    // Several versions of a symbol count as one.
    void* function(const char* name) const noexcept { return defined(name, STT_FUNC); }
    void* variable(const char* name) const noexcept { return defined(name, STT_OBJECT); }
    // Empty where the library has none.
    const char* soname() const noexcept { return soname_; }

    // A place that the loader fills with the address of a symbol: of its own library or of another.
    struct Slot {
        const char* name;
        void** place;
        bool is_call;  // until the first call it may lead to the loader instead
        bool weak;     // it may stay empty
    };
    template <class Visit>
    void for_slots(Visit&& visit) const {
        for (const auto& relocations : {calls_, data_}) {
            for (const auto& relocation : relocations) {
                const auto type = ELF64_R_TYPE(relocation.r_info);
                const auto& symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
                const bool is_call = type == R_X86_64_JUMP_SLOT;
                if (!is_call && type != R_X86_64_GLOB_DAT && type != R_X86_64_64) continue;
                if (symbol.st_name == 0 || relocation.r_addend != 0) continue;
                visit(Slot{strings_ + symbol.st_name, reinterpret_cast<void**>(base_ + relocation.r_offset), is_call,
                           ELF64_ST_BIND(symbol.st_info) == STB_WEAK});
            }
        }
    }

private:
    void* defined(const char* name, unsigned type) const noexcept;
    void* at(std::uint32_t index, const char* name, unsigned type) const noexcept;
    void* find_by_gnu_hash(const char* name, unsigned type) const noexcept;
    void* find_one_by_one(const char* name, unsigned type) const noexcept;

    const ElfW(Addr) base_;
    const ElfW(Sym) * symbols_ = nullptr;
    const char* strings_ = nullptr;
    const char* soname_ = "";
    const std::uint32_t* gnu_hash_ = nullptr;
    const std::uint32_t* hash_ = nullptr;
    std::span<const ElfW(Rela)> calls_, data_;
};

// Not strcmp: see above.
bool same_name(const char* a, const char* b) noexcept;

}  // namespace hpe
