// SPDX-License-Identifier: MIT
// How many blocks of a kernel a multiprocessor holds (CUDA Driver API, "Occupancy"; CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability").
//
// Bytes are of shared memory. Threads: any. Errors: what KernelFunction::info() throws.
#pragma once

#include <cstddef>

#include "toolchain/softgpu/driver/module/module.h"

namespace hpe::soft {

// How much dynamic shared memory a launch of the function may ask for.
unsigned most_dynamic_shared(KernelFunction& function);

// How many blocks of this shape one multiprocessor holds.
unsigned blocks_per_multiprocessor_of(KernelFunction& function, unsigned threads, std::size_t dynamic_shared);

}  // namespace hpe::soft
