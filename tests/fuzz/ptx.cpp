// SPDX-License-Identifier: MIT
// Fuzz target: the PTX parser, verifier and printer. Text that parses is printed, and what was printed parses to the
// same.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/target.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"

using namespace hpe;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string why;
    const auto module = ptx::parse({reinterpret_cast<const char*>(data), size}, why);
    if (module == nullptr) {
        if (why.empty()) stop("refused without a reason");
        return 0;
    }
    ptx::verify(*module, why);
    const std::string printed = ptx::print(*module);
    const auto again = ptx::parse(printed, why);
    if (again == nullptr) stop("what was printed does not parse: " + why + "\n" + printed);
    if (ptx::print(*again) != printed) stop("printed twice, it differs:\n" + printed + "\n---\n" + ptx::print(*again));
    return 0;
}
