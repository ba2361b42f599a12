// SPDX-License-Identifier: MIT
// A function while it is translated: instructions whose operands name virtual registers. finish() gives the registers
// their places, sharing them where lifetimes allow (each thread only ever sees its own lane, so the ordinary liveness
// of one thread is right for all), and resolves jumps.
//
// One function, one thread. Errors: finish() returns false for a jump to nowhere.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "toolchain/softgpu/exec/machine.h"

namespace hpe::soft::exec {

// What the fields of an Instr are to the register allocator.
enum Role : std::uint16_t {
    role_dst = 1,
    role_src0 = 2,
    role_src1 = 4,
    role_src2 = 8,
    role_src3 = 16,
    role_src3_def = 32,
    role_extra_def = 64,    // `extra` is a register itself
    role_extras_use = 128,  // `count` registers in the extras
    role_extras_def = 256,
};

struct Draft {
    Instr i;
    std::uint16_t roles = 0;
    std::uint32_t label = 0;            // jump target, 0: none
    std::vector<std::uint32_t> labels;  // of a jump table
    Watched watched;
    bool leader = false;
    bool ends = false;  // nothing follows it, unless it is guarded
};

class Drafts {
public:
    // Register references before finish(): number << 1. Constants have bit 0 set and are final.
    std::uint32_t make_register(unsigned bytes);  // 0: a predicate
    unsigned bytes_of(std::uint32_t ref) const { return registers_[ref >> 1]; }

    std::uint32_t constant(std::uint64_t bits, unsigned bytes);  // 0: a predicate
    std::uint32_t address(const std::string& symbol, std::int64_t addend, unsigned bytes = 8);

    Draft& emit(Handler run, std::uint32_t line);
    Draft& last() { return drafts_.back(); }
    std::uint32_t make_label() { return ++labels_; }
    void place_label(std::uint32_t label);  // emits a leader
    void leader();
    std::vector<std::uint32_t>& extras() { return code_.extras; }

    // False: a label without a place.
    bool finish(Code& out);
    Code& code() { return code_; }

private:
    template <class F>
    void registers_of(Draft& d, F f);  // f(ref&, bool definition)
    void allocate();
    std::uint32_t add_constant(std::uint64_t bits, unsigned bytes);

    Code code_;
    std::vector<Draft> drafts_;
    std::vector<std::uint8_t> registers_{0};  // bytes of each; number 0 is the carry flag, which keeps its place
    std::uint32_t labels_ = 0;
    std::map<std::uint32_t, std::uint32_t> places_;
    std::map<std::pair<std::uint64_t, unsigned>, std::uint32_t> constants_;
    std::map<std::pair<std::string, std::int64_t>, std::uint32_t> addresses_;
};

}  // namespace hpe::soft::exec
