// SPDX-License-Identifier: MIT
// Launches of kernels (CUDA Driver API, "Execution Control"), in streams and graphs.
//
// Sizes in bytes. Threads: any; parameters are copied. Errors: exceptions of type Error (call.h); what run() answers
// breaks the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/module/module.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class ConditionalValues;

struct KernelOp {
    std::shared_ptr<KernelFunction> function;
    Dim3 grid, block;
    std::uint32_t dynamic_shared = 0;
    bool cooperative = false;
    std::vector<std::byte> parameters;
    std::shared_ptr<ConditionalValues> conditionals;  // of the graph that it runs in
};
CUresult run(Context& context, const KernelOp& operation);

// Checks the shape of a launch and copies its parameters, given as pointers to each or as one packed buffer (`extra`).
// Throws what cuLaunchKernel returns.
KernelOp kernel_operation(std::shared_ptr<KernelFunction> function, Dim3 grid, Dim3 block, unsigned dynamic_shared,
                          bool cooperative, void* const* parameters, void* const* extra);

}  // namespace hpe::soft
