// SPDX-License-Identifier: MIT
// Functions of the application that run in the order of a stream's work.
#include "toolchain/softgpu/driver/stream/host_function.h"

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/operation.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {

CUresult run(Context&, const HostOp& operation) {
    const InCallback inside;
    operation.function(operation.data);
    return CUDA_SUCCESS;
}

CUresult run(Context& context, const CallbackOp& operation) {
    const InCallback inside;
    operation.function(operation.stream, context.sticky(), operation.data);
    return CUDA_SUCCESS;
}

CUresult api::cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    require(function != nullptr);
    submit(*stream_of(handle), HostOp{function, data});
    return CUDA_SUCCESS;
}

CUresult api::cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned flags) {
    require(function != nullptr && flags == 0);
    const auto stream = stream_of(handle);
    forbid_capturing(*stream);
    submit(*stream, CallbackOp{function, handle, data});
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
