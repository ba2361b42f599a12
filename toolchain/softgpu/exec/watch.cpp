// SPDX-License-Identifier: MIT
// Stands in front of the handlers of what touches shared memory while races are looked for.
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/races.h"
#include "toolchain/softgpu/exec/resolve.h"

namespace hpe::soft::exec {
namespace {

using Kind = Watched::Kind;

constexpr std::uint64_t offset_bits = (std::uint64_t{1} << window_shift) - 1;

// Offset in shared memory of what the handler will find in range; what it will not it reports itself.
bool inside(const Warp& w, Memory memory, std::uint64_t address, std::uint64_t bytes, std::uint32_t& at) {
    const std::uint64_t size = w.block->launch->shared_bytes;
    if (memory != Memory::Shared && (address & ~offset_bits) != shared_window) return false;
    if ((address & ~offset_bits) == shared_window) address &= offset_bits;
    at = static_cast<std::uint32_t>(address);
    return address < size && bytes <= size - address;
}

// What lane l is about to store, element k.
const std::byte* value_of(const Warp& w, const Instr* i, const Watched& what, unsigned k, unsigned l) {
    const std::uint32_t ref = i->count == 1 ? i->src[1] : w.frame->code->extras[i->extra + k];
    return w.at<const std::byte>(ref) + std::size_t{l} * what.register_bytes;
}

void store(Warp& w, const Instr* i, const Watched& what, unsigned l, std::uint32_t at) {
    for (unsigned k = 0; k < i->count; k++, at += what.bytes) {
        const std::byte* const value = value_of(w, i, what, k, l);
        w.block->races->write(w, i, l, at, what.bytes, what.strong, value);
        // The lanes after this one compare with what it wrote; the handler will write it again.
        std::memcpy(w.block->shared + at, value, what.bytes);
    }
}

void copies(Warp& w, const Instr* i, const Watched& what, std::uint32_t mask) {
    Races& races = *w.block->races;
    const auto word = [&](unsigned n, unsigned l, bool narrow) -> std::uint64_t {
        return narrow ? w.at<const std::uint32_t>(i->src[n])[l] : w.at<const std::uint64_t>(i->src[n])[l];
    };
    std::uint32_t at = 0;
    if (what.kind == Kind::CopyAsync) {
        each(mask, [&](unsigned l) {
            if (inside(w, Memory::Shared, word(0, l, (i->flags & flag_address32) != 0), i->imm, at))
                races.write(w, i, l, at, static_cast<std::uint32_t>(i->imm), false, nullptr);
        });
        return;
    }
    const bool in = i->mode != 0;
    each(mask, [&](unsigned l) {
        const std::uint32_t bytes = w.at<const std::uint32_t>(i->src[2])[l];
        const unsigned n = in ? 0 : 1;
        if (!inside(w, Memory::Shared, word(n, l, (i->flags & (flag_bulk32 << n)) != 0), bytes, at)) return;
        if (!in) {
            races.read(w, i, l, at, bytes);
            return;
        }
        races.write(w, i, l, at, bytes, false, nullptr);
        if (inside(w, Memory::Shared, word(3, l, (i->flags & flag_bulk_mbarrier32) != 0), 8, at))
            races.release(w, l, at);
    });
}

}  // namespace

const Instr* run_watched(Warp& w, const Instr* i, std::uint32_t mask) {
    const Code& code = *w.frame->code;
    const Watched& what = code.watched[static_cast<std::size_t>(i - code.instructions.data())];
    if (w.block->races == nullptr) return what.run(w, i, mask);
    Races& races = *w.block->races;
    if (what.kind == Kind::CopyAsync || what.kind == Kind::CopyBulk) {
        copies(w, i, what, mask);
        return what.run(w, i, mask);
    }
    alignas(64) std::uint64_t address[lanes];
    addresses(w, i, address);
    const bool vector = what.kind == Kind::Load || what.kind == Kind::Store;
    const std::uint32_t bytes = what.bytes * (vector ? i->count : 1u);
    each(mask, [&](unsigned l) {
        std::uint32_t at = 0;
        const bool shared = (address[l] & (bytes - 1)) == 0 && inside(w, i->memory, address[l], bytes, at);
        const std::uint64_t key = shared ? at : address[l];
        if (!shared && !what.strong) return;
        switch (what.kind) {
            case Kind::Load:
                if (shared) races.read(w, i, l, at, bytes);
                if (what.strong) races.acquire(w, l, key);
                break;
            case Kind::Store:
                if (shared) store(w, i, what, l, at);
                if (what.strong) races.release(w, l, key);
                break;
            case Kind::Atomic:
            case Kind::Reduction:
            case Kind::Mbarrier:
                if (shared) races.write(w, i, l, at, bytes, what.strong, nullptr);
                if (what.kind == Kind::Atomic) races.acquire(w, l, key);
                if (what.strong) races.release(w, l, key);
                break;
            default: break;
        }
    });
    const Instr* const next = what.run(w, i, mask);
    if (what.kind == Kind::MbarrierWait && next != nullptr)
        each(*w.at<const std::uint32_t>(i->dst) & mask, [&](unsigned l) {
            std::uint32_t at = 0;
            if (!inside(w, i->memory, address[l], bytes, at)) return;
            races.read(w, i, l, at, bytes);
            races.acquire(w, l, at);
        });
    return next;
}

}  // namespace hpe::soft::exec
