// SPDX-License-Identifier: MIT
// Writes a Module as PTX text. Parsing that text gives an equal module, line numbers apart.
// Threads: any, there is no state. Errors: none but std::bad_alloc.
#pragma once

#include <string>

#include "toolchain/ptx/ast.h"

namespace hpe::ptx {

std::string print(const Module& module);
std::string print(const Instruction& instruction);  // without indentation and newline

}  // namespace hpe::ptx
