// SPDX-License-Identifier: MIT
// Splits PTX text into tokens. Comments and preprocessor lines are dropped.
// The text must outlive its tokens. Threads: any, there is no state. Source: PTX ISA, "Syntax".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpe::ptx {

struct Token {
    enum class Kind { End, Name, Dot, Integer, Float32, Float64, Text, Punctuation };
    Kind kind = Kind::End;
    std::uint32_t line = 0;
    std::string_view text;    // as written; of a Dot (".global", ".L1::evict_last") without the first dot
    std::uint64_t value = 0;  // Integer: the value; floats: the bits
    bool is(char c) const { return kind == Kind::Punctuation && text.size() == 1 && text[0] == c; }
    bool is_dot(std::string_view name) const { return kind == Kind::Dot && text == name; }
    bool is_name(std::string_view name) const { return kind == Kind::Name && text == name; }
};

// The tokens point into `text`. False: `why` names the line.
bool tokenize(std::string_view text, std::vector<Token>& out, std::string& why);

}  // namespace hpe::ptx
