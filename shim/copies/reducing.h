// SPDX-License-Identifier: MIT
// Arrays of numbers, combined element by element on the device. What is read may be an object of this process or memory
// of another one that was opened here (ipc/remote_read.h); what is written is an object.
//
// The results are those of an x86 processor, bit for bit; that includes NaNs, but for which of two comes out.
//
// Bytes, counts in elements. Memory is the caller's; the kernels, one for each reduction, belong to a context and die
// with it. Threads: any, outside the fault path and the gate. Errors: false; what was to be written is then undefined.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/coherence/coherence.h"

namespace hpe::reducing {

enum class Numbers : std::uint8_t { Signed, Unsigned, Floating };
enum class Operation : std::uint8_t { Sum, Product, Least, Greatest, And, Or, Xor };
constexpr std::size_t kOperations = 7;

struct Reduction {
    Numbers numbers = Numbers::Signed;
    std::uint8_t bytes = 0;  // of a number: 4 or 8
    Operation operation = Operation::Sum;
    bool operator==(const Reduction&) const = default;
};

// Whether combine() can be called for it in the context: the kernel is there, and the device has what is to be read.
// Waits for the device work before.
bool prepare(const Reduction& reduction, void* context, DeviceRange reads) noexcept;

// Arrays of `count` elements; `to` may be one of the others.
struct Operands {
    std::uintptr_t to, first, second;
};
// One after the other. No earlier device work uses the memory. Done on return.
bool combine(const Reduction& reduction, void* context, std::span<const Operands> all, std::size_t count,
             DeviceRange reads, DeviceRange writes) noexcept;

struct Piece {
    std::uintptr_t to, from;
    std::size_t bytes;
};
// The same for copies.
bool copy(void* context, std::span<const Piece> all, DeviceRange writes) noexcept;

// The context has ended.
void forget(CUcontext context) noexcept;

}  // namespace hpe::reducing
