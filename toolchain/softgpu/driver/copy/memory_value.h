// SPDX-License-Identifier: MIT
// Values in memory that streams write and wait for (CUDA Driver API, "Stream Memory Operations"), in streams and
// graphs.
//
// Threads: any; parameters are copied. Errors: exceptions of type Error (call.h); what run() answers breaks the
// context.
#pragma once

#include <cstdint>
#include <vector>

#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Context;

// One of cuStreamWriteValue, cuStreamWaitValue and the elements of cuStreamBatchMemOp.
struct ValueOp {
    std::uint64_t address = 0, value = 0;
    bool wide = false;   // 64 bits
    bool write = false;  // else wait
    unsigned wait = 0;   // CU_STREAM_WAIT_VALUE_GEQ, EQ, AND, NOR
};
struct ValueOps {
    std::vector<ValueOp> list;
};
CUresult run(Context& context, const ValueOps& operations);

// Checks a batch and turns it into an operation. Throws INVALID_VALUE.
ValueOps value_operations(unsigned count, const CUstreamBatchMemOpParams* parameters, unsigned flags);

}  // namespace hpe::soft
