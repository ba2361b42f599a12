// SPDX-License-Identifier: MIT
// Parses PTX text into a Module.
// The module is the caller's and keeps nothing of the text. Threads: any, there is no state. Source: PTX ISA.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "toolchain/ptx/ast.h"

namespace hpe::ptx {

// nullptr: `why` says in one line what is wrong and where.
std::unique_ptr<Module> parse(std::string_view text, std::string& why);

}  // namespace hpe::ptx
