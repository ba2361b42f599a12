// SPDX-License-Identifier: MIT
// The operands with which the instruction forms are run, the same on a GPU and in the executor.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace forms {

constexpr unsigned cells = 2048;

inline std::uint64_t random(std::uint64_t& state) {  // SplitMix64
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Operand number `which` of every cell, for "int", "small", "f32", "f64", "f16" and "bf16".
inline std::vector<std::uint64_t> input(const std::string& domain, unsigned which) {
    std::uint64_t state = 1000 + which;
    for (const char c : domain) state = state * 31 + static_cast<unsigned char>(c);
    static const std::uint32_t f32[] = {0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
                                        0x7fc00000, 0xffc12345, 0x7f812345, 0x00000001, 0x80000001, 0x007fffff,
                                        0x00800000, 0x00800001, 0x7f7fffff, 0xff7fffff, 0x3effffff, 0x3f000000,
                                        0x3fc00000, 0x40200000, 0x4b000001, 0x4b7fffff, 0x4f000000, 0xcf000000,
                                        0x4f7fffff, 0x5f000000, 0xdf000000, 0x5f7fffff, 0x47ffefff, 0x477ff000};
    static const std::uint64_t f64[] = {0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000, 0xbff0000000000000,
                                        0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x0000000000000001,
                                        0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x3fe0000000000000,
                                        0x3ff8000000000000, 0x4004000000000000, 0x41dfffffffc00000, 0x41e0000000000000,
                                        0xc1e0000000000000, 0x43e0000000000000, 0xc3e0000000000000, 0x43efffffffffffff,
                                        0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000};
    static const std::uint16_t f16[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x0001, 0x8001,
                                        0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3800, 0x3e00, 0x4100, 0x3bff, 0x7800, 0x1400};
    static const std::uint64_t ints[] = {0,
                                         1,
                                         2,
                                         31,
                                         32,
                                         33,
                                         63,
                                         64,
                                         127,
                                         128,
                                         255,
                                         256,
                                         32767,
                                         32768,
                                         65535,
                                         65536,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0x100000000,
                                         0x7fffffffffffffff,
                                         0x8000000000000000,
                                         0xffffffffffffffff,
                                         0xfffffffffffffffe,
                                         0x20000000000001};
    const auto pick = [&](const auto& table) { return table[random(state) % (sizeof table / sizeof table[0])]; };
    std::vector<std::uint64_t> v(cells);
    for (unsigned n = 0; n < cells; n++) {
        const std::uint64_t r = random(state);
        const bool special = random(state) % 3 == 0;
        if (domain == "f32") {
            // Exponents near each other make sums that round; any bits at all come too.
            const auto sign = static_cast<std::uint32_t>(r >> 63) << 31;
            const auto near =
                sign | static_cast<std::uint32_t>(110 + r % 40) << 23 | static_cast<std::uint32_t>(r >> 40 & 0x7fffff);
            v[n] = special ? pick(f32) : n % 4 == 0 ? (r & 0xffffffff) : near;
        } else if (domain == "f64") {
            const std::uint64_t near = (r & 0x800fffffffffffff) | (1000 + r % 80) << 52;
            v[n] = special ? pick(f64) : n % 4 == 0 ? r : near;
        } else if (domain == "f16" || domain == "bf16") {
            v[n] = special ? std::uint64_t{pick(f16)} << 16 | pick(f16) : r & 0xffffffff;
        } else if (domain == "small") {
            v[n] = which == 0 ? (special ? pick(ints) : r) : special ? r % 300 : r % 70;
        } else {
            v[n] = special ? pick(ints) : n % 4 == 0 ? r % 1000 : r;
        }
    }
    return v;
}

inline std::uint64_t fingerprint(const std::uint64_t* v) {  // FNV-1a
    std::uint64_t h = 0xcbf29ce484222325u;
    for (unsigned n = 0; n < cells; n++)
        for (unsigned k = 0; k < 8; k++) h = (h ^ (v[n] >> (8 * k) & 255)) * 0x100000001b3u;
    return h;
}

}  // namespace forms
