// SPDX-License-Identifier: MIT
// ld and st over 32 lanes (PTX ISA, "Data Movement and Conversion Instructions"). Compiled once per instruction set.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/resolve.h"

namespace hpe::soft::exec {
namespace {

// A vector is one access, as programs see it on hardware: CUB's scans publish a value and its flag so. PTX does not
// promise that. Aligned accesses of up to 16 bytes are whole on the processors of today, too.
constexpr unsigned most_in_vector = 8;
void copy_whole(void* to, const void* from, std::size_t bytes) {
    typedef std::uint64_t Sixteen __attribute__((vector_size(16), aligned(1), may_alias));
    typedef std::uint64_t Eight __attribute__((aligned(1), may_alias));
    typedef std::uint32_t Four __attribute__((aligned(1), may_alias));
    if (bytes == 8) {
        *static_cast<volatile Eight*>(to) = *static_cast<const volatile Eight*>(from);
    } else if (bytes >= 16) {
        for (std::size_t at = 0; at < bytes / sizeof(Sixteen); at++)
            static_cast<volatile Sixteen*>(to)[at] = static_cast<const volatile Sixteen*>(from)[at];
    } else if (bytes == 4) {
        *static_cast<volatile Four*>(to) = *static_cast<const volatile Four*>(from);
    } else {
        std::memcpy(to, from, bytes);
    }
}

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
    if (count == 1) {
        R* d = w.at<R>(i->dst);
        const auto one = [&](unsigned l) {
            M v;
            std::memcpy(&v, at.host[l], sizeof v);
            d[l] = static_cast<R>(v);
        };
        if (mask == all_lanes) {
            for (unsigned l = 0; l < lanes; l++) one(l);
        } else {
            for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1)
                one(static_cast<unsigned>(__builtin_ctz(rest)));
        }
        return i + 1;
    }
    R* d[most_in_vector];
    for (unsigned k = 0; k < count; k++) d[k] = w.at<R>(targets[k]);
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        alignas(16) M v[most_in_vector];
        copy_whole(v, at.host[l], sizeof(M) * count);
        for (unsigned k = 0; k < count; k++) d[k][l] = static_cast<R>(v[k]);
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
    const R* s[most_in_vector];
    for (unsigned k = 0; k < count; k++) s[k] = w.at<const R>(sources[k]);
    // Lane by lane: where lanes write the same bytes, the highest one wins, with all of its elements.
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        alignas(16) M v[most_in_vector];
        for (unsigned k = 0; k < count; k++) v[k] = static_cast<M>(s[k][l]);
        copy_whole(at.host[l], v, sizeof(M) * count);
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
