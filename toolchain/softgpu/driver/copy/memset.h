// SPDX-License-Identifier: MIT
// Memory set to a value: cuMemsetD8 and its relatives (CUDA Driver API, "Memory Management"), in streams and graphs.
//
// Sizes in elements, pitches in bytes. Threads: any, there is no state. Errors: what run() answers breaks the context.
#pragma once

#include <cstddef>
#include <cstdint>

#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Context;

struct SetOp {
    std::uint64_t address = 0;
    std::size_t pitch = 0;
    std::uint32_t value = 0;
    unsigned element = 1;               // 1, 2 or 4 bytes
    std::size_t width = 0, height = 1;  // width in elements
};
CUresult run(Context& context, const SetOp& operation);

}  // namespace hpe::soft
