// SPDX-License-Identifier: MIT
// Programs compiled in parts, which the driver links when it loads them (nvcc's manual, "Using Separate Compilation in
// CUDA").
//
// An image is its caller's. Threads: any, there is no state. Errors: exceptions of type Error (call.h).
#pragma once

#include <string>

#include "toolchain/fatbin/fatbin.h"
#include "toolchain/softgpu/driver/module/jit_options.h"

namespace hpe::soft {

// What ptx_of (image.h) does, for a program of several parts (nvcc -rdc=true), linked; of any other image what that
// gives. Names that no part defines must be in `given`.
fatbin::Ptx linked_ptx_of(const void* image, const HostSymbols& given, std::string& why);

}  // namespace hpe::soft
