// SPDX-License-Identifier: MIT
// Does operations, and what becomes of their errors.
#include "toolchain/softgpu/driver/stream/operation.h"

#include "toolchain/softgpu/driver/context/context.h"

namespace hpe::soft {

void perform(Context& context, const Operation& operation) {
    // After an error the rest of the context's work falls away.
    if (context.sticky() != CUDA_SUCCESS && !operation.survives_errors()) return;
    CUresult result = CUDA_SUCCESS;
    try {
        result = operation.run_in(context);
    } catch (const Error& error) {
        result = error.code;
    } catch (...) {
        result = CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) context.break_with(result);
}

}  // namespace hpe::soft
