// SPDX-License-Identifier: MIT
// Keeps the library loadable on glibc 2.34: the C++ runtime that is linked in would otherwise bring in newer symbols.
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

#if __GLIBC_PREREQ(2, 35)
namespace {

struct Search {
    std::uintptr_t address;
    dl_find_object* found;
};

int look(dl_phdr_info* object, std::size_t, void* data) {
    auto& search = *static_cast<Search*>(data);
    std::uintptr_t frames = 0, begin = 0, end = 0;
    for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_GNU_EH_FRAME) frames = start;
        if (segment.p_type != PT_LOAD || search.address < start || search.address >= start + segment.p_memsz) continue;
        begin = start;
        end = start + segment.p_memsz;
    }
    if (end == 0) return 0;
    if (frames == 0) return -1;
    *search.found = {};
    search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
    search.found->dlfo_map_end = reinterpret_cast<void*>(end);
    search.found->dlfo_eh_frame = reinterpret_cast<void*>(frames);
    return 1;
}

}  // namespace

// libgcc's unwinder asks glibc 2.35 and later where an address's unwind tables are, and has no other way left.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void* address, dl_find_object* found) noexcept {
    Search search{reinterpret_cast<std::uintptr_t>(address), found};
    return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif
