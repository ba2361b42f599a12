// SPDX-License-Identifier: MIT
// Checks what parsing cannot: names that are declared twice or not at all, sizes, and what a function refers to.
// The module is only read. Threads: any, there is no state.
#pragma once

#include <string>

#include "toolchain/ptx/ast.h"

namespace hpe::ptx {

// False: `why` says in one line what is wrong and where.
bool verify(const Module& module, std::string& why);

}  // namespace hpe::ptx
