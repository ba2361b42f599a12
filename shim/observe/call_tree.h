// SPDX-License-Identifier: MIT
// Call stacks as a tree, each stack once, and what was counted for each thing that happened there.
//
// Counters: of call_stacks.h. Threads: add() any, also in the fault path; number() and the others one at a time,
// outside it. Errors: what is beyond kMost stacks, has no frame or no memory, or could not be taken is counted as
// kOther.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shim/base/backtrace.h"

namespace hpe::call_tree {

constexpr std::uint32_t kMost = 1u << 15;
constexpr std::uint32_t kOther = 1;

// The outermost caller has none.
constexpr std::uint32_t kNoParent = 0xffffffff;

struct Node {
    std::uint32_t parent;
    backtrace::Place place;
};

struct Stack {
    const char* what;
    std::uint32_t node;  // the innermost; kNoParent: not known
    bool cut;            // callers above the outermost node are not known
};

// False: no memory.
bool open() noexcept;
std::uint32_t number(const char* what, std::span<const backtrace::Place> places, bool cut);
void add(std::uint32_t number, const backtrace::Payload& payload);

const std::vector<Node>& nodes();
// By number less kOther.
const std::vector<Stack>& stacks();
backtrace::Payload counted(std::uint32_t number);

}  // namespace hpe::call_tree
