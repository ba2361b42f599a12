// SPDX-License-Identifier: MIT
// Hands operations to streams, to captures, and to the code that does them.
#include "toolchain/softgpu/driver/operation.h"

#include "toolchain/softgpu/driver/capture.h"
#include "toolchain/softgpu/driver/driver.h"
#include "toolchain/softgpu/driver/stream.h"

namespace hpe::soft {

void perform(Context& context, const Operation& operation) {
    // After an error the rest of the context's work falls away; a callback of the older kind is still told.
    if (context.sticky() != CUDA_SUCCESS && !std::holds_alternative<CallbackOp>(operation)) return;
    CUresult result = CUDA_SUCCESS;
    try {
        result = std::visit(
            [&](const auto& op) -> CUresult {
                if constexpr (std::is_same_v<std::decay_t<decltype(op)>, std::monostate>)
                    return CUDA_SUCCESS;
                else
                    return run(context, op);
            },
            operation);
    } catch (const Error& error) {
        result = error.code;
    } catch (...) {
        result = CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) context.break_with(result);
}

void submit(Stream& stream, Operation operation) {
    const std::lock_guard lock(driver().order);
    if (capture_operation(stream, operation)) return;
    append(stream, [&context = stream.context, shared = std::make_shared<const Operation>(std::move(operation))] {
        perform(context, *shared);
    });
}

}  // namespace hpe::soft
