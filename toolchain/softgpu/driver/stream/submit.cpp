// SPDX-License-Identifier: MIT
// Hands operations to streams and to captures.
#include "toolchain/softgpu/driver/stream/submit.h"

#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

void submit(Stream& stream, OperationRef operation) {
    wait_for_room(stream);
    const std::lock_guard lock(driver().order);
    if (const auto capture = capture_for_work(stream)) {
        capture->add(stream, operation);
        return;
    }
    append(stream, [&context = stream.context, shared = std::move(operation)] { perform(context, *shared); });
}

}  // namespace hpe::soft
