// SPDX-License-Identifier: MIT
// What programs hand over to be loaded: PTX as text, a fat binary, a file of either (CUDA Driver API, "Module
// Management", cuModuleLoadData).
//
// An image is its caller's. Threads: any, there is no state. Errors: exceptions of type Error (call.h).
#pragma once

#include <string>

#include "toolchain/fatbin/fatbin.h"

namespace hpe::soft {

// The PTX in an image of any form that a program may pass. Throws the error that CUDA has for what is wrong with it,
// and `why` says it in words. `any_device`: PTX for newer devices than this, too.
fatbin::Ptx ptx_of(const void* image, std::string& why, bool any_device = false);
std::string read_file(const char* name);  // with a NUL behind it; throws FILE_NOT_FOUND

}  // namespace hpe::soft
