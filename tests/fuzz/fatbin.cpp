// SPDX-License-Identifier: MIT
// Fuzz target: the fat binary reader. What it gives back is text without a NUL.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/target.h"
#include "toolchain/fatbin/fatbin.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    hpe::fatbin::Ptx ptx;
    std::string why;
    if (!hpe::fatbin::extract_ptx(std::as_bytes(std::span(data, size)), ptx, why)) {
        if (why.empty()) stop("refused without a reason");
    } else if (ptx.text.find('\0') != std::string::npos) {
        stop("text with a NUL");
    }
    return 0;
}
