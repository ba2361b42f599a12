// SPDX-License-Identifier: MIT
// Initial values of module-scope variables as bytes and relocations. Source: PTX ISA, "Initializers".
// Threads: any, there is no state. Errors: false, `why` says in one line what is wrong.
#pragma once

#include <string>

#include "toolchain/ptx/ast.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft::exec {

bool initial_bytes(const ptx::Variable& v, Variable& out, std::string& why);

}  // namespace hpe::soft::exec
