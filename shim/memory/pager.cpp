// SPDX-License-Identifier: MIT
// mmap, mremap and mprotect at device addresses.
#include "shim/memory/pager.h"

#include <cerrno>

#include "shim/base/kernel.h"
#include "shim/memory/arena.h"
#include "shim/memory/mappings.h"

#include "shim/base/in_fault_path.h"

namespace hpe::pager {

// Atomic for other threads: at no moment is the range free, or accessible if `memory` is not.
bool map_shadow(std::uintptr_t address, std::size_t size, std::byte* memory) noexcept {
    auto* const target = reinterpret_cast<void*>(address);
    return mappings::with_reserve(
        [&] { return kernel::mremap(memory, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target; });
}

bool close_shadow(std::uintptr_t address, std::size_t size, std::byte* closed) noexcept {
    return protect(address, size, State::Invalid) || map_shadow(address, size, closed);
}

bool close_shadow(const Object& object) noexcept {
    return close_shadow(object.base, object.size, Arena::closed(object.view));
}

bool unmap_shadow(std::uintptr_t address, std::size_t size) noexcept {
    auto* const target = reinterpret_cast<void*>(address);
    return mappings::with_reserve([&] {
        return kernel::mmap(target, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED) == target;
    });
}

bool protect(std::uintptr_t address, std::size_t size, State state) noexcept {
    int protection = PROT_NONE;
    if (state == State::ReadOnly) protection = PROT_READ;
    if (state == State::Dirty) protection = PROT_READ | PROT_WRITE;
    return mappings::with_reserve(
        [&] { return kernel::mprotect(reinterpret_cast<void*>(address), size, protection) == 0; });
}

bool protect(const Object& object, std::size_t offset, std::size_t bytes, State state) noexcept {
    // Of one block all pages share a mapping, which gaps may not keep more accessible than its state.
    if (!valid_on_host(state) || object.coarse()) return protect(object.base + offset, bytes, state);
    const bool all = object.for_accessible(offset, bytes, [&](std::size_t first, std::size_t length) {
        return protect(object.base + first, length, state);
    });
    // None of it then.
    const auto error = errno;
    if (!all && object.is_region()) close_shadow(object);
    errno = error;
    return all;
}

}  // namespace hpe::pager
