// SPDX-License-Identifier: MIT
// Packing and unpacking on the device: the bytes of an object that a layout names, one after the other. A kernel
// gathers them into memory of ours on the device, from where one copy brings them; so only what a message is made of
// crosses the link, and no block changes its side.
//
// Source: thesis section 5.3; Pearson et al., "TEMPI" (HPDC 2021), section 4.
//
// Bytes. Objects and host memory are the caller's; the kernel and its memory belong to a context and die with it.
// Threads: any, outside the fault path and the gate. Errors: false, and the caller's CPU does all of it: the device has
// no memory, no compiler for the kernel, or is not to be used now. What was unpacked before is unpacked once more then.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shim/copies/layout.h"

namespace hpe::packing {

// A kernel, a copy and two waits cost some tens of microseconds, as do the fetches of so many bytes.
constexpr std::size_t kSmallestSpan = std::size_t{256} << 10;

// Whether the layout is one for the device if it is put at `at`: it has gaps, its bytes are far apart, and most of what
// lies there is not valid on the host.
bool worth_it(const Layout& layout, std::uintptr_t at) noexcept;

// The first `bytes` packed bytes. `packed` lies in ordinary memory or, where the bytes stay on the device, in an
// object.
bool pack(const Layout& layout, std::uintptr_t at, std::byte* packed, std::size_t bytes) noexcept;
bool unpack(const Layout& layout, std::uintptr_t at, const std::byte* packed, std::size_t bytes) noexcept;

void forget(CUcontext context) noexcept;

}  // namespace hpe::packing
