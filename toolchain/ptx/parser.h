// SPDX-License-Identifier: MIT
// Parses PTX text into a Module.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "toolchain/ptx/ast.h"

namespace hpe::ptx {

// nullptr: `why` says in one line what is wrong and where.
std::unique_ptr<Module> parse(std::string_view text, std::string& why);

}  // namespace hpe::ptx
