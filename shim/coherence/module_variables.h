// SPDX-License-Identifier: MIT
// The variables of modules (__device__, __constant__) whose addresses the program asked for. They are shared with the
// CPU like allocations, from the first such call until their module or library is unloaded, or their context ends. Only
// their own bytes are moved: what else the driver placed beside them is nobody's here.
//
// Addresses are the device's, sizes bytes; an owner is a CUmodule or a CUlibrary. Threads: any, outside the fault path.
// Errors: none; a variable that cannot be shared is device-owned.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hpe::module_variables {

// Outside the gate.
void found(std::uintptr_t base, std::size_t bytes, const void* owner);
// Its variables go with the library.
void is_part(const void* module, const void* library);

// What was found through the owner, or through a module of it.
std::vector<std::uintptr_t> of(const void* owner);
// After the true call, outside the gate; of a context's, inside.
void unloaded(const void* owner, std::span<const std::uintptr_t> variables);
void forget(CUcontext context);

}  // namespace hpe::module_variables
