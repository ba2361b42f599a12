// SPDX-License-Identifier: MIT
// ld and st over 32 lanes (PTX ISA, "Data Movement and Conversion Instructions"). Compiled once per instruction set.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/resolve.h"

namespace hpe::soft::exec {
namespace {

// M as it is in memory, R as it is in the register; narrower values are extended as M's sign says.
template <class M, class R>
const Instr* load(Warp& w, const Instr* i, std::uint32_t mask) {
    const unsigned count = i->count;
    Resolved at;
    if (!resolve(w, i, mask, static_cast<std::uint32_t>(sizeof(M) * count), false, at)) return nullptr;
    if ((i->flags & flag_synchronises) != 0) w.spins = true;
    const std::uint32_t* targets = count == 1 ? &i->dst : w.frame->code->extras.data() + i->extra;
    if (at.first != nullptr) {
        if (count == 1) {
            R* d = w.at<R>(i->dst);
            if constexpr (sizeof(M) == sizeof(R)) {
                std::memcpy(d, at.first, sizeof(R) * lanes);
            } else {
                alignas(64) M v[lanes];
                std::memcpy(v, at.first, sizeof v);
                for (unsigned l = 0; l < lanes; l++) d[l] = static_cast<R>(v[l]);
            }
            return i + 1;
        }
        for (unsigned l = 0; l < lanes; l++) at.host[l] = at.first + l * sizeof(M) * count;
    }
    for (unsigned k = 0; k < count; k++) {
        R* d = w.at<R>(targets[k]);
        const auto one = [&](unsigned l) {
            M v;
            std::memcpy(&v, at.host[l] + k * sizeof(M), sizeof v);
            d[l] = static_cast<R>(v);
        };
        if (mask == all_lanes) {
            for (unsigned l = 0; l < lanes; l++) one(l);
        } else {
            for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
                one(static_cast<unsigned>(__builtin_ctz(rest)));
        }
    }
    return i + 1;
}

template <class M, class R>
const Instr* store(Warp& w, const Instr* i, std::uint32_t mask) {
    const unsigned count = i->count;
    Resolved at;
    if (!resolve(w, i, mask, static_cast<std::uint32_t>(sizeof(M) * count), true, at)) return nullptr;
    const std::uint32_t* sources = count == 1 ? &i->src[1] : w.frame->code->extras.data() + i->extra;
    if (at.first != nullptr) {
        if (count == 1) {
            const R* s = w.at<const R>(i->src[1]);
            if constexpr (sizeof(M) == sizeof(R)) {
                std::memcpy(at.first, s, sizeof(R) * lanes);
            } else {
                alignas(64) M v[lanes];
                for (unsigned l = 0; l < lanes; l++) v[l] = static_cast<M>(s[l]);
                std::memcpy(at.first, v, sizeof v);
            }
            return i + 1;
        }
        for (unsigned l = 0; l < lanes; l++) at.host[l] = at.first + l * sizeof(M) * count;
    }
    // Lane by lane: where lanes write the same bytes, the highest one wins, with all of its elements.
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        for (unsigned k = 0; k < count; k++) {
            const auto v = static_cast<M>(w.at<const R>(sources[k])[l]);
            std::memcpy(at.host[l] + k * sizeof(M), &v, sizeof v);
        }
    }
    return i + 1;
}

template <class M>
Handler load_into(unsigned bytes) {
    if constexpr (sizeof(M) <= 2)
        if (bytes == 2) return load<M, std::uint16_t>;
    if constexpr (sizeof(M) <= 4)
        if (bytes == 4) return load<M, std::uint32_t>;
    return bytes == 8 ? Handler{load<M, std::uint64_t>} : nullptr;
}
template <class M>
Handler store_from(unsigned bytes) {
    if constexpr (sizeof(M) <= 2)
        if (bytes == 2) return store<M, std::uint16_t>;
    if constexpr (sizeof(M) <= 4)
        if (bytes == 4) return store<M, std::uint32_t>;
    return bytes == 8 ? Handler{store<M, std::uint64_t>} : nullptr;
}

}  // namespace

namespace HPE_ISA {

Handler load_handler(Type type, unsigned register_bytes) {
    switch (type) {
        case Type::S8: return load_into<std::int8_t>(register_bytes);
        case Type::S16: return load_into<std::int16_t>(register_bytes);
        case Type::S32: return load_into<std::int32_t>(register_bytes);
        default: break;
    }
    switch (ptx::size_of(type)) {
        case 1: return load_into<std::uint8_t>(register_bytes);
        case 2: return load_into<std::uint16_t>(register_bytes);
        case 4: return load_into<std::uint32_t>(register_bytes);
        case 8: return load_into<std::uint64_t>(register_bytes);
        default: return nullptr;
    }
}

Handler store_handler(Type type, unsigned register_bytes) {
    switch (ptx::size_of(type)) {
        case 1: return store_from<std::uint8_t>(register_bytes);
        case 2: return store_from<std::uint16_t>(register_bytes);
        case 4: return store_from<std::uint32_t>(register_bytes);
        case 8: return store_from<std::uint64_t>(register_bytes);
        default: return nullptr;
    }
}

}  // namespace HPE_ISA
}  // namespace hpe::soft::exec
