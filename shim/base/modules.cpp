// SPDX-License-Identifier: MIT
// dl_iterate_phdr, and pages of the modules' files.
#include "shim/base/modules.h"

#include <sys/auxv.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shim/base/kernel_file.h"

namespace hpe::modules {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 1024;  // kept, of all files

struct Page {
    std::uint32_t module = kNone;
    std::uint64_t number = 0;
    std::size_t valid = 0;  // bytes
    alignas(8) std::byte bytes[kPage];
};

// Mapped when first needed, so that a process without stacks does without.
struct Memory {
    std::array<Module, kMost> modules;
    std::uint32_t count;
    unsigned long long added, removed;  // by the loader, at the last refresh
    std::array<Page, kPages> pages;
};
Memory* memory() noexcept {
    static Memory* const instance = []() -> Memory* {
        void* place =
            kernel::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        if (place == MAP_FAILED) return nullptr;
        auto* made = static_cast<Memory*>(place);  // zeros are right for all but page numbers
        for (auto& page : made->pages) page.module = kNone;
        return made;
    }();
    return instance;
}

void take_notes(Module& module, std::uintptr_t at, std::size_t bytes) noexcept {
    const auto end = at + bytes;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
        const auto name = at + sizeof *note;
        const auto text = name + (note->n_namesz + 3u) / 4 * 4;
        const auto next = text + (note->n_descsz + 3u) / 4 * 4;
        if (next > end || next <= at) return;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
            std::memcmp(reinterpret_cast<const void*>(name), "GNU", 4) == 0) {
            module.build_id_bytes = std::min<std::size_t>(note->n_descsz, module.build_id.size());
            module.build_id_at = text;
            std::memcpy(module.build_id.data(), reinterpret_cast<const void*>(text), module.build_id_bytes);
            return;
        }
        at = next;
    }
}

void take_headers(Module& module, const dl_phdr_info& info) noexcept {
    std::size_t segments = 0;
    module.bias = info.dlpi_addr;
    module.begin = ~std::uintptr_t{0};
    for (int i = 0; i < info.dlpi_phnum; ++i) {
        const auto& header = info.dlpi_phdr[i];
        const auto begin = info.dlpi_addr + header.p_vaddr;
        if (header.p_type == PT_LOAD) {
            module.begin = std::min(module.begin, begin);
            module.end = std::max(module.end, begin + header.p_memsz);
            if (segments < module.segments.size()) {
                module.segments[segments++] = {begin, begin + header.p_filesz, header.p_offset,
                                               (header.p_flags & PF_W) != 0};
            }
        } else if (header.p_type == PT_GNU_EH_FRAME) {
            module.unwind_table = begin;
        } else if (header.p_type == PT_NOTE && module.build_id_bytes == 0) {
            take_notes(module, begin, header.p_memsz);
        }
    }
}

struct Look {
    Memory& all;
    std::uint32_t known;  // modules before this look
    bool first = true, unchanged = false;
};

bool is_relative(const char* name) noexcept { return *name != '/' && std::strchr(name, '/') != nullptr; }

bool is_named(const Module& module, const char* name) noexcept {
    if (!is_relative(name)) return std::strcmp(module.path, name) == 0;
    const char* const path = std::strrchr(module.path, '/');
    return path != nullptr && std::strcmp(path, std::strrchr(name, '/')) == 0;
}

// With the loader's lock: nothing here allocates, waits or calls the loader.
int look_at(dl_phdr_info* info, std::size_t bytes, void* argument) noexcept {
    auto& look = *static_cast<Look*>(argument);
    auto& all = look.all;
    if (look.first) {
        look.first = false;
        if (bytes >= offsetof(dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) {
            look.unchanged = all.count != 0 && all.added == info->dlpi_adds && all.removed == info->dlpi_subs;
            if (look.unchanged) return 1;
            all.added = info->dlpi_adds;
            all.removed = info->dlpi_subs;
        }
        for (std::uint32_t i = 0; i < all.count; ++i) all.modules[i].loaded = false;
    }
    const char* name = info->dlpi_name != nullptr ? info->dlpi_name : "";
    Module fresh;
    take_headers(fresh, *info);
    if (fresh.begin >= fresh.end) return 0;
    fresh.in_memory = fresh.begin == getauxval(AT_SYSINFO_EHDR);
    std::strncpy(fresh.path, name, sizeof fresh.path - 1);
    fresh.loaded = true;
    for (std::uint32_t i = 0; i < look.known; ++i) {
        auto& old = all.modules[i];
        // The program itself has no name here, and a library may have a relative one: these are found below.
        if (old.begin == fresh.begin && old.end == fresh.end && old.build_id == fresh.build_id &&
            (*name == '\0' || is_named(old, name))) {
            old.loaded = true;
            return 0;
        }
    }
    if (all.count < kMost) all.modules[all.count++] = fresh;
    return 0;
}

// The kernel knows where a library lies whose name is relative to a folder that the program may have left.
void find_path(Module& module) noexcept {
    kernel::look_at_mappings([&](std::uintptr_t begin, std::uintptr_t end, std::string_view rest) {
        if (module.begin < begin || module.begin >= end) return false;
        if (const auto path = rest.find('/'); path != rest.npos) {
            module.path[rest.copy(module.path, sizeof module.path - 1, path)] = '\0';
        }
        return true;
    });
}

void name(Module& module) noexcept {
    if (is_relative(module.path)) find_path(module);
    if (module.path[0] != '\0') return;
    const auto length = kernel::raw(SYS_readlink, kernel::word("/proc/self/exe"), kernel::word(module.path),
                                    static_cast<long>(sizeof module.path - 1));
    if (length < 0) module.path[0] = '\0';
}

const Segment* segment_of(const Module& module, std::uintptr_t address, std::size_t bytes) noexcept {
    for (const auto& segment : module.segments) {
        if (address >= segment.begin && address < segment.end && segment.end - address >= bytes) return &segment;
    }
    return nullptr;
}

// Whether the file is the one that was loaded, as far as its build-id tells.
bool same_build(const Module& module, const kernel::File& file) noexcept {
    if (module.build_id_bytes == 0) return true;
    const Segment* const segment = segment_of(module, module.build_id_at, module.build_id_bytes);
    std::array<unsigned char, 32> there{};
    return segment != nullptr &&
           file.read_at(segment->offset + (module.build_id_at - segment->begin), there.data(), module.build_id_bytes) ==
               static_cast<long>(module.build_id_bytes) &&
           there == module.build_id;
}

// Reads a part of the module's file; returns bytes, 0 for none. The file is not kept open: a program that closes all
// that it did not open would make a file of its own of ours.
std::size_t read_module(Module& module, std::uint64_t offset, void* to, std::size_t bytes) noexcept {
    if (module.looked_at && !module.same_file) return 0;
    const kernel::File file(module.path);
    if (!file) return 0;
    if (!module.looked_at) {
        module.looked_at = true;
        module.same_file = same_build(module, file);
    }
    return module.same_file ? static_cast<std::size_t>(std::max(file.read_at(offset, to, bytes), 0L)) : 0;
}

}  // namespace

bool refresh() noexcept {
    Memory* const all = memory();
    if (all == nullptr) return true;
    Look look{*all, all->count};
    dl_iterate_phdr(look_at, &look);
    if (look.unchanged) return true;
    bool kept = true;
    for (auto i = look.known; i < all->count; ++i) {
        auto& module = all->modules[i];
        name(module);
        kept = kept && std::none_of(all->modules.begin(), all->modules.begin() + i, [&](const Module& old) {
                   return !old.loaded && old.begin < module.end && module.begin < old.end;
               });
    }
    return kept;
}

std::uint32_t find(std::uintptr_t address) noexcept {
    Memory* const all = memory();
    if (all == nullptr) return kNone;
    for (std::uint32_t i = 0; i < all->count; ++i) {
        const auto& module = all->modules[i];
        if (module.loaded && address >= module.begin && address < module.end) return i;
    }
    return kNone;
}

const Module& at(std::uint32_t number) noexcept { return memory()->modules[number]; }
std::span<const Module> all() noexcept {
    return memory() != nullptr ? std::span(memory()->modules).first(memory()->count) : std::span<const Module>();
}

bool read(std::uint32_t number, std::uintptr_t address, std::uint64_t& word) noexcept {
    auto& module = memory()->modules[number];
    if (module.in_memory) {
        if (address < module.begin || module.end - address < sizeof word) return false;
        std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
        return true;
    }
    const Segment* const segment = segment_of(module, address, 1);
    if (segment == nullptr) return false;
    if (segment->writable) {
        word = 0;
        return true;
    }
    const auto offset = segment->offset + (address - segment->begin);
    const auto page_number = offset / kPage;
    auto& page = memory()->pages[(page_number + number * std::uint64_t{0x9E3779B1}) % kPages];
    if (page.module != number || page.number != page_number) {
        page.module = kNone;
        page.valid = read_module(module, page_number * kPage, page.bytes, kPage);
        if (page.valid == 0) return false;
        page.module = number;
        page.number = page_number;
    }
    if (offset % kPage + sizeof word > page.valid) return false;
    std::memcpy(&word, page.bytes + offset % kPage, sizeof word);
    return true;
}

std::string build_id_text(const Module& module) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < module.build_id_bytes; ++i) {
        text += digits[module.build_id[i] >> 4];
        text += digits[module.build_id[i] & 15];
    }
    return text;
}

}  // namespace hpe::modules
