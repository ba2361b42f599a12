// SPDX-License-Identifier: MIT
// The variables of modules (__device__, __constant__) whose addresses the program asked for. They are shared with the
// CPU like allocations, from the first such call until their module or library is unloaded, or their context ends. What
// else the driver placed beside them is nobody's here, and not moved. The constants of a module are one allocation of
// the driver's, and so one variable here, with those that nobody asked for.
//
// One that cannot be shared leaves all variables of its chunk of addresses on the device: in an open page it would be
// accessible, and not be brought.
//
// Addresses are the device's, sizes bytes. Threads: any, outside the fault path; the gate: see each. Errors:
// std::bad_alloc; a variable that cannot be shared is device-owned.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hpe::module_variables {

// What a variable was found through, and is unloaded with.
struct Owner {
    CUmodule module;           // which may be one of a library
    CUlibrary loaded_library;  // nullptr: a module
    static Owner of(CUmodule module) noexcept { return {module, nullptr}; }
    static Owner of(CUlibrary library) noexcept { return {nullptr, library}; }
    bool operator==(const Owner&) const = default;
};
struct Variable {
    std::uintptr_t base;
    std::size_t bytes;
    std::uint64_t buffer;  // the driver's number of it, which no other allocation has; 0: the driver does not say
    Owner owner;
    CUcontext context;  // nullptr: the driver does not say
    bool shared = false;
};

// The one that holds these bytes. Nothing: it is known already, or no memory of the device alone (__managed__).
std::optional<Variable> if_new(std::uintptr_t address, std::size_t bytes, Owner owner);
// Outside the gate.
void add(const Variable& variable);

// The program was given a module that may be one of a library: only then a library is asked for its modules at its end,
// which may have to load them first.
void library_modules_given() noexcept;

// Before the true call that ends them; they are unknown from here on. put_back(): it failed, and what was shared is so
// again. Of an owner outside the gate.
std::vector<Variable> take(Owner owner);
std::vector<Variable> take(CUcontext context);
void put_back(std::span<const Variable> variables);

}  // namespace hpe::module_variables
