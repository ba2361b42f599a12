// SPDX-License-Identifier: MIT
// Translation of texture fetches: those of a texture object by its handle, without filtering.
#include "toolchain/softgpu/exec/translate.h"

namespace hpe::soft::exec {

bool Translator::texture() {
    struct Geometry {
        const char* name;
        std::uint16_t mode;
        std::size_t words;  // of the coordinates; in three dimensions the last one counts for nothing
    };
    static constexpr Geometry geometries[] = {
        {"1d", 1, 1}, {"2d", 2, 2}, {"3d", 3, 4}, {"a1d", 1 | texture_layered, 2}, {"a2d", 2 | texture_layered, 4}};
    const bool level = has("level");  // there is only the level 0, which every number means
    const Geometry* geometry = nullptr;
    for (const auto& candidate : geometries)
        if (geometry == nullptr && has(candidate.name)) geometry = &candidate;
    if (geometry == nullptr || !has("v4")) return refuse("");
    const Type result = take_type(), coordinate = take_type();
    const bool integer = coordinate == Type::S32;
    if (result != Type::U32 && result != Type::S32 && result != Type::F32) return refuse("");
    if (!integer && coordinate != Type::F32) return refuse("");
    if (!all_taken() || !operand_count(level ? 3 : 2)) return false;
    const Operand& to = now_->operands[0];
    const Operand& from = now_->operands[1];
    if (to.kind != Operand::Kind::Vector || to.elements.size() != 4) return refuse("the result");
    if (from.kind != Operand::Kind::Coordinates || from.elements.size() != 2) return refuse("a sampler of its own");
    if (!is_register(from.elements[0])) return refuse("a texture reference");
    const Operand& list = from.elements[1];
    const bool scalar = list.kind != Operand::Kind::Vector;
    if (scalar ? geometry->words != 1 : list.elements.size() != geometry->words)
        return wrong("a wrong number of coordinates");
    const bool layered = (geometry->mode & texture_layered) != 0;
    const unsigned words = (geometry->mode & 3u) + (layered ? 1 : 0);
    const std::uint32_t handle = source(from.elements[0], 8);
    std::uint32_t at[3] = {};
    for (unsigned n = 0; n < words; n++) {
        const bool counts = integer || (layered && n == 0);
        at[n] = source(scalar ? list : list.elements[n], counts ? Type::B32 : Type::F32);
    }
    if (level) source(now_->operands[2], integer ? Type::B32 : Type::F32);
    std::vector<std::uint32_t> targets;
    for (const Operand& e : to.elements) targets.push_back(destination(e, 4));
    if (!ok_) return false;
    Draft& d = emit(run_texture);
    d.i.src[0] = handle;
    d.roles = role_src0 | role_extras_def;
    for (unsigned n = 0; n < words; n++) {
        d.i.src[n + 1] = at[n];
        d.roles = static_cast<std::uint16_t>(d.roles | (role_src1 << n));
    }
    d.i.mode = static_cast<std::uint16_t>(geometry->mode | (integer ? texture_integer : 0));
    d.i.count = 4;
    d.i.extra = static_cast<std::uint32_t>(drafts_.extras().size());
    drafts_.extras().insert(drafts_.extras().end(), targets.begin(), targets.end());
    return ok_;
}

}  // namespace hpe::soft::exec
