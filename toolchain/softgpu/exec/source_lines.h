// SPDX-License-Identifier: MIT
// From a line of PTX to the line of the source that it was compiled from, as -lineinfo tells with .file and .loc.
// Constant once made; any thread may ask.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "toolchain/ptx/ast.h"

namespace hpe::soft::exec {

class SourceLines {
public:
    void read(const ptx::Module& module);
    // "file.cu:12", with the place that it was inlined at in the end, or nothing when nobody told.
    std::string of(std::uint32_t ptx_line) const;

private:
    struct Function;
    void read(const ptx::Scope& scope, Function& function);
    std::string name(const std::string& file_and_line) const;

    std::unordered_map<std::string, std::string> files_;         // by number
    std::unordered_map<std::uint32_t, std::string> places_;      // "file line" by line of PTX
    std::unordered_map<std::uint32_t, std::string> inlined_at_;  // the same, of the outermost place
};

}  // namespace hpe::soft::exec
