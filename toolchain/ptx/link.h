// SPDX-License-Identifier: MIT
// Links modules: joins several into one, in which what is declared .extern in one stands for what another defines.
//
// A name that is .visible has one definition; one that is .weak may have more, of which the first counts unless there
// is a .visible one; one that is .common is the largest of its variables. Names without such a word stay those of their
// module: where two modules use the same one, the later is renamed. Kernels keep their names.
//
// The modules are taken apart. Threads: any, there is no state. Source: PTX ISA, "Linking Directives".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "toolchain/ptx/ast.h"

namespace hpe::ptx {

struct LinkInput {
    std::unique_ptr<Module> module;
    std::string name;  // for messages
};

// `provided` answers whether a name that no module defines is known to whoever will run the result. nullptr: `why` says
// what is wrong, one line for each reason.
std::unique_ptr<Module> link(std::vector<LinkInput> inputs, const std::function<bool(const std::string&)>& provided,
                             std::string& why);
// Whether what the modules define and declare fits together, whatever is still missing. False: as above.
bool fits(std::vector<LinkInput>& inputs, std::string& why);

}  // namespace hpe::ptx
