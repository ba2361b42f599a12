// SPDX-License-Identifier: MIT
// The device code of the program: what nvcc's start-up code registers before main, and how the address of a host
// stub or of a host shadow variable becomes a kernel or a variable of the driver. Registering touches no driver; a fat
// binary is loaded when the first thing in it is needed.
//
// Threads: any. Errors: CUDA's.
#pragma once

#include "driver.h"

namespace hpe::soft::cudart {

// `function` is what programs pass for a kernel: the address of its host stub, or a cudaKernel_t.
cudaError_t find_kernel(const Driver& d, const void* function, CUkernel& kernel);
// The host stub of a kernel; the handle itself when it belongs to no registered fat binary.
void* host_function(CUkernel kernel);

// `symbol` is the address of the host shadow of a __device__, __constant__ or __managed__ variable. The address is that
// of the variable in the current context.
cudaError_t find_variable(const Driver& d, const void* symbol, CUdeviceptr& address, size_t& size);

}  // namespace hpe::soft::cudart
