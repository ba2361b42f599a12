// SPDX-License-Identifier: MIT
// The abstract syntax of a PTX module: what the parser makes, the printer writes, and the executor and the analyses
// read. Modifiers stay text ("global", "v4", "rn", "L1::evict_last"): their meaning belongs to whoever interprets the
// opcode.
//
// A Module owns everything below it. Threads: plain data; any number may read. Source: PTX ISA, "Syntax" and
// "Directives".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace hpe::ptx {

enum class Space : std::uint8_t { None, Reg, Const, Global, Local, Param, Shared };

enum class Type : std::uint8_t {
    None,
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
    Texref,
    Samplerref,
    Surfref,
};

// Bytes of a value of the type; 0 for predicates and opaque types.
unsigned size_of(Type type);
Type type_named(const std::string& name);  // without the dot; None if it is no type
const char* name_of(Type type);
const char* name_of(Space space);

struct Operand {
    enum class Kind {
        Name,        // register, special register (%tid.x), variable, label, function
        Integer,     // value
        Float32,     // value: the bits
        Float64,     // value: the bits
        Address,     // [base + value]: elements[0] is a Name or an Integer
        Vector,      // {a, b, ...}
        List,        // (a, b, ...) of a call
        Pair,        // p|q, {a, b, ...}|p
        Coordinates  // [name, {x, y}] of textures: elements[0] the name, the rest what follows
    };
    Kind kind = Kind::Name;
    bool negated = false;  // !p
    std::string name;
    std::int64_t value = 0;
    std::vector<Operand> elements;
    bool operator==(const Operand&) const = default;
};

struct Guard {
    std::string name;  // empty: none
    bool negated = false;
    bool operator==(const Guard&) const = default;
};

struct Instruction {
    std::uint32_t line = 0;  // in the text, from 1
    Guard guard;
    std::string opcode;
    std::vector<std::string> modifiers;  // without dots
    std::vector<Operand> operands;
    bool has(const char* modifier) const;
};

struct Label {
    std::uint32_t line = 0;
    std::string name;
};

// One element of an initialiser.
struct Initial {
    enum class Kind { Integer, Float32, Float64, Symbol, Zeros };
    Kind kind = Kind::Integer;
    std::int64_t value = 0;  // the bits; for a symbol its addend; for Zeros how many elements
    std::string symbol;
    bool generic = false;    // generic(symbol)
    std::uint64_t mask = 0;  // 0xFF00(symbol): one byte of the address; 0: all of it
    bool operator==(const Initial&) const = default;
};

struct Variable {
    std::uint32_t line = 0;
    Space space = Space::None;
    Type type = Type::None;
    unsigned vector = 1;
    std::uint64_t alignment = 0;  // 0: not stated
    std::string name;
    std::uint32_t count = 0;  // .reg %r<5>: 5; 0: no such suffix
    bool array = false;
    bool unsized = false;                // s[]
    std::vector<std::uint64_t> extents;  // of an array
    bool has_initial = false;
    std::vector<Initial> initial;         // nested braces are flattened, short rows filled with Zeros
    std::string linkage;                  // "visible", "extern", "weak", "common" or empty
    std::vector<std::string> attributes;  // text of .attribute(...), .ptr and their like, as written
    std::uint64_t bytes() const;          // 0 for an unsized array and for registers
};

// .loc, .pragma, .branchtargets, .calltargets, .callprototype: kept as text; labels of prototypes stand before them.
struct Directive {
    std::uint32_t line = 0;
    std::string name;                // without the dot
    std::vector<std::string> words;  // the tokens up to the end of it
    bool semicolon = true;
};

struct Scope;
using Statement = std::variant<Instruction, Label, Variable, Directive, std::unique_ptr<Scope>>;
struct Scope {
    std::vector<Statement> statements;
};

struct Function {
    std::uint32_t line = 0;
    std::string name;
    bool entry = false;
    std::string linkage;
    std::vector<Variable> results, parameters;
    std::vector<Directive> directives;  // .maxntid and so on
    bool noreturn = false;
    bool defined = false;  // has a body
    Scope body;
    const Directive* directive(const char* name) const;
};

struct Module;
using Item = std::variant<Variable, Function, Directive>;
struct Module {
    std::string version, target;
    unsigned address_size = 64;
    std::vector<Item> items;  // in their order
    int target_arch() const;  // 75 of "sm_75, debug"
};

}  // namespace hpe::ptx
