// SPDX-License-Identifier: MIT
// Small questions about PTX syntax nodes.
#include "toolchain/ptx/ast.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hpe::ptx {
namespace {

struct TypeRow {
    const char* name;
    Type type;
    unsigned bytes;
};
constexpr std::array type_table = {
    TypeRow{"pred", Type::Pred, 0},       TypeRow{"b8", Type::B8, 1},
    TypeRow{"b16", Type::B16, 2},         TypeRow{"b32", Type::B32, 4},
    TypeRow{"b64", Type::B64, 8},         TypeRow{"b128", Type::B128, 16},
    TypeRow{"u8", Type::U8, 1},           TypeRow{"u16", Type::U16, 2},
    TypeRow{"u32", Type::U32, 4},         TypeRow{"u64", Type::U64, 8},
    TypeRow{"s8", Type::S8, 1},           TypeRow{"s16", Type::S16, 2},
    TypeRow{"s32", Type::S32, 4},         TypeRow{"s64", Type::S64, 8},
    TypeRow{"f16", Type::F16, 2},         TypeRow{"f16x2", Type::F16x2, 4},
    TypeRow{"bf16", Type::BF16, 2},       TypeRow{"bf16x2", Type::BF16x2, 4},
    TypeRow{"f32", Type::F32, 4},         TypeRow{"f64", Type::F64, 8},
    TypeRow{"texref", Type::Texref, 8},   TypeRow{"samplerref", Type::Samplerref, 8},
    TypeRow{"surfref", Type::Surfref, 8},
};

}  // namespace

unsigned size_of(Type type) {
    for (const auto& row : type_table)
        if (row.type == type) return row.bytes;
    return 0;
}

Type type_named(const std::string& name) {
    for (const auto& row : type_table)
        if (name == row.name) return row.type;
    return Type::None;
}

const char* name_of(Type type) {
    for (const auto& row : type_table)
        if (row.type == type) return row.name;
    return "";
}

const char* name_of(Space space) {
    switch (space) {
        case Space::None: return "";
        case Space::Reg: return "reg";
        case Space::Const: return "const";
        case Space::Global: return "global";
        case Space::Local: return "local";
        case Space::Param: return "param";
        case Space::Shared: return "shared";
    }
    return "";
}

bool Instruction::has(const char* modifier) const {
    return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

std::uint64_t Variable::bytes() const {
    if (space == Space::Reg || unsized) return 0;
    std::uint64_t total = std::uint64_t{size_of(type)} * vector;
    for (const std::uint64_t extent : extents) total *= extent;
    return total;
}

const Directive* Function::directive(const char* wanted) const {
    for (const auto& d : directives)
        if (d.name == wanted) return &d;
    return nullptr;
}

int Module::target_arch() const {
    const auto at = target.find("sm_");
    int arch = 0;
    for (std::size_t i = at == std::string::npos ? target.size() : at + 3;
         i < target.size() && target[i] >= '0' && target[i] <= '9' && arch < 10000; i++)
        arch = arch * 10 + (target[i] - '0');
    return arch;
}

}  // namespace hpe::ptx
