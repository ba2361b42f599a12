// SPDX-License-Identifier: MIT
// Functions of the application that run in the order of a stream's work: cuLaunchHostFunc (CUDA Driver API, "Execution
// Control") and cuStreamAddCallback ("Stream Management").
//
// They run on a worker thread, where driver calls are refused. Function and data are the application's. Errors: none.
#pragma once

#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Context;

struct HostOp {
    CUhostFn function = nullptr;
    void* data = nullptr;
};
CUresult run(Context& context, const HostOp& operation);

// The older callback, told about errors of the context.
struct CallbackOp {
    static constexpr bool survives_errors = true;
    CUstreamCallback function = nullptr;
    CUstream stream = nullptr;
    void* data = nullptr;
};
CUresult run(Context& context, const CallbackOp& operation);

}  // namespace hpe::soft
