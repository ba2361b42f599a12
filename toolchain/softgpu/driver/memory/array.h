// SPDX-License-Identifier: MIT
// CUDA arrays (CUDA Driver API, "Memory Management", cuArray3DCreate): memory that copies and textures reach by
// position. Rows lie densely behind each other in an allocation of the array's own, whose address no call tells.
//
// Extents in elements, positions and strides in bytes. An array never changes; the registry shares it with its users.
// Threads: any. Errors: exceptions of type Error (call.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "toolchain/softgpu/driver/base/abi.h"

namespace hpe::soft {

class Context;

struct Array {
    CUarray handle() const { return reinterpret_cast<CUarray>(const_cast<Array*>(this)); }
    std::size_t rows() const { return std::max<std::size_t>(descriptor.Height, 1); }
    std::size_t planes() const { return std::max<std::size_t>(descriptor.Depth, 1); }  // or layers
    std::size_t slice() const { return pitch * rows(); }
    std::size_t bytes() const { return slice() * planes(); }

    Context* context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    std::size_t element = 0, pitch = 0;
    std::uint64_t address = 0;
};

// Bytes of one channel; 0: the soft device has no arrays and textures of this format.
unsigned channel_bytes(CUarray_format format);
// The same of an element. Throws INVALID_VALUE, or NOT_SUPPORTED for formats that only hardware has.
unsigned element_bytes(CUarray_format format, unsigned channels);

std::shared_ptr<Array> array_of(CUarray handle);         // throws INVALID_HANDLE
std::shared_ptr<Array> array_at(std::uint64_t address);  // the one that has this byte; nullptr: none
void forget_arrays(Context& context);                    // when it ends; their memory goes with the context's

}  // namespace hpe::soft
