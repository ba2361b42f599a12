// SPDX-License-Identifier: MIT
// The profiler's switches. No profiler can be attached to the soft device, and without one they do nothing in CUDA too.
#include "toolchain/softgpu/driver/context/current.h"

namespace hpe::soft {

CUresult api::cuProfilerStart() {
    current();
    return CUDA_SUCCESS;
}
CUresult api::cuProfilerStop() {
    current();
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
