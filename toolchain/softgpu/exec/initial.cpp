// SPDX-License-Identifier: MIT
// Turns initialisers into bytes.
#include "toolchain/softgpu/exec/initial.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hpe::soft::exec {
namespace {

constexpr std::uint64_t largest = std::uint64_t{1} << 32;

std::uint64_t value_of(const ptx::Initial& v, ptx::Type type) {
    const auto bits = static_cast<std::uint64_t>(v.value);
    if (v.kind == ptx::Initial::Kind::Float64 && type == ptx::Type::F32)
        return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    if (v.kind == ptx::Initial::Kind::Float32 && type == ptx::Type::F64)
        return std::bit_cast<std::uint64_t>(
            static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
    return bits;
}

}  // namespace

bool initial_bytes(const ptx::Variable& v, Variable& out, std::string& why) {
    const unsigned element = ptx::size_of(v.type);
    out.name = v.name;
    out.constant = v.space == ptx::Space::Const;
    out.external = v.linkage == "extern";
    for (const std::string& a : v.attributes) out.managed |= a.find(".managed") != std::string::npos;
    out.size = v.bytes();
    out.alignment = std::max<std::uint64_t>({v.alignment, std::uint64_t{element} * v.vector, 1});
    if (element == 0 || v.type == ptx::Type::Texref || v.type == ptx::Type::Samplerref ||
        v.type == ptx::Type::Surfref) {
        why = "a variable of a type that is not supported: " + v.name;
        return false;
    }
    std::uint64_t at = 0;
    for (std::size_t n = 0; n < v.initial.size(); n++) {
        const ptx::Initial& value = v.initial[n];
        const std::uint64_t bytes =
            value.kind == ptx::Initial::Kind::Zeros ? static_cast<std::uint64_t>(value.value) * element : element;
        if (bytes > largest || at + bytes > largest || (!v.unsized && at + bytes > out.size)) {
            why = "more initial values than elements: " + v.name;
            return false;
        }
        if (value.kind == ptx::Initial::Kind::Symbol) {
            std::uint64_t place = at;
            if (value.mask != 0) {
                // An address byte by byte: 0xFF(f), 0xFF00(f), ... must be all eight of it, in order.
                for (unsigned k = 0; k < 8; k++)
                    if (element != 1 || n + k >= v.initial.size() || v.initial[n + k].symbol != value.symbol ||
                        v.initial[n + k].value != value.value ||
                        v.initial[n + k].mask != std::uint64_t{255} << (8 * k)) {
                        why = "an initial value that is a part of an address: " + v.name;
                        return false;
                    }
                n += 7;
                at += 8;
                if (!v.unsized && at > out.size) {
                    why = "more initial values than elements: " + v.name;
                    return false;
                }
            } else if (element != 8) {
                why = "an address in less than 64 bits: " + v.name;
                return false;
            } else {
                at += 8;
            }
            out.initial.resize(at);
            out.relocations.push_back({place, value.symbol, value.value});
            continue;
        }
        out.initial.resize(at + bytes);
        if (value.kind != ptx::Initial::Kind::Zeros) {
            const std::uint64_t bits = value_of(value, v.type);
            std::memcpy(out.initial.data() + at, &bits, std::min(element, 8u));
        }
        at += bytes;
    }
    if (v.unsized) out.size = at;
    return true;
}

}  // namespace hpe::soft::exec
