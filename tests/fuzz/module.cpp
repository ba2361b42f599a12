// SPDX-License-Identifier: MIT
// Fuzz target: the module loader. Every kernel of a module that loads is translated, or refused with a reason.
#include <cstdint>

#include "tests/fuzz/target.h"
#include "toolchain/softgpu/exec/exec.h"

using namespace hpe::soft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Failure failure;
    const auto program = Program::load({reinterpret_cast<const char*>(data), size}, failure);
    if (program == nullptr) {
        if (!failure || failure.message.empty()) stop("refused without a reason");
        return 0;
    }
    std::uint64_t address = std::uint64_t{1} << 40;
    for (const Variable& variable : program->variables()) {
        if (variable.initial.size() > variable.size) stop("more initial bytes than the variable has");
        for (const Relocation& relocation : variable.relocations)
            if (relocation.offset + 8 > variable.size) stop("a relocation outside its variable");
        program->place(variable.name, address);
        address += 4096;
    }
    for (const std::string& kernel : program->kernels()) {
        Failure refusal;
        if (program->prepare(kernel, refusal) == nullptr && (!refusal || refusal.message.empty()))
            stop("kernel refused without a reason");
    }
    return 0;
}
