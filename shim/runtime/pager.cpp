// SPDX-License-Identifier: MIT
// mmap, mremap and mprotect at device addresses.
#include "shim/runtime/pager.h"

#include <sys/mman.h>

namespace hpe::pager {

bool map_shadow(std::uintptr_t address, std::size_t size, std::byte* closed) noexcept {
    auto* const target = reinterpret_cast<void*>(address);
    // Atomic for other threads: at no moment is the range accessible or free.
    return mremap(closed, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target;
}

bool unmap_shadow(std::uintptr_t address, std::size_t size) noexcept {
    auto* const target = reinterpret_cast<void*>(address);
    return mmap(target, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == target;
}

bool protect(std::uintptr_t address, std::size_t size, State state) noexcept {
    int protection = PROT_NONE;
    if (state == State::ReadOnly) protection = PROT_READ;
    if (state == State::Dirty) protection = PROT_READ | PROT_WRITE;
    return mprotect(reinterpret_cast<void*>(address), size, protection) == 0;
}

}  // namespace hpe::pager
