// SPDX-License-Identifier: MIT
// Texture fetches without filtering. Source: CUDA C++ Programming Guide, "Texture Fetching", nearest-point sampling;
// what it leaves open ends the launch instead of giving a value.
#include <cmath>

#include "toolchain/softgpu/exec/half.h"
#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/memory.h"

namespace hpe::soft::exec {
namespace {

using Format = Texture::Format;

unsigned bytes_of(Format format) {
    switch (format) {
        case Format::U8:
        case Format::S8: return 1;
        case Format::U16:
        case Format::S16:
        case Format::F16: return 2;
        default: return 4;
    }
}

// The texel that a coordinate falls into. False: outside, where the border is.
bool texel_of(float x, const Texture& t, unsigned dimension, std::uint32_t& texel) {
    const Texture::Address mode = t.address[dimension];
    const std::uint32_t extent = t.extent[dimension];
    bool mirrored = false;
    if (t.normalized) {
        if (std::fpclassify(x) == FP_SUBNORMAL) x = 0;  // as on an H200
        const float whole = std::floor(x), fraction = x - whole;
        if (mode == Texture::Address::Wrap || mode == Texture::Address::Mirror) x = fraction;
        mirrored = mode == Texture::Address::Mirror && std::fmod(whole, 2.0f) != 0;
        x *= static_cast<float>(extent);
    }
    x = std::floor(x);
    // Texels are mirrored, not coordinates: on a texel's edge that is another one (seen on an H200).
    if (mirrored) x = static_cast<float>(extent) - 1 - x;
    const bool below = !(x >= 0), above = x >= static_cast<float>(extent);  // no number counts as below
    if (mode == Texture::Address::Border && (below || above)) return false;
    texel = below ? 0 : above ? extent - 1 : static_cast<std::uint32_t>(x);
    return true;
}

// One channel as a fetch returns it.
std::uint32_t channel(const std::byte* from, const Texture& t) {
    const auto read = [&]<class T>(T v) {
        std::memcpy(&v, from, sizeof v);
        return v;
    };
    // The lowest two values of a signed format both mean -1.
    const auto value = [&](auto v, float most) {
        if (!t.integers_as_float) return static_cast<std::uint32_t>(static_cast<std::int32_t>(v));
        const float f = static_cast<float>(v) / most;
        return bits_of_float(f < -1 ? -1 : f);
    };
    switch (t.format) {
        case Format::U8: return value(read(std::uint8_t{}), 255);
        case Format::S8: return value(read(std::int8_t{}), 127);
        case Format::U16: return value(read(std::uint16_t{}), 65535);
        case Format::S16: return value(read(std::int16_t{}), 32767);
        case Format::F16: return bits_of_float(F16::load(read(std::uint16_t{})));
        default: return read(std::uint32_t{});
    }
}

const Texture* find_texture(Worker& worker, std::uint64_t handle) {
    for (const auto& bound : worker.textures)
        if (bound.handle == handle && bound.texture) return bound.texture.get();
    auto texture = worker.memory->texture(handle);
    if (!texture) return nullptr;
    auto& place = worker.textures[worker.next_texture];
    worker.next_texture = (worker.next_texture + 1) % Worker::cached;
    place = {handle, std::move(texture)};
    return place.texture.get();
}

// May the instruction read such a texture? An array of one row may be read as if it had one dimension less.
bool fits(const Texture& t, unsigned dimensions, bool layered, bool integer) {
    if (t.layered != layered || t.dimensions < dimensions || (t.linear && !integer)) return false;
    for (unsigned d = dimensions; d < t.dimensions; d++)
        if (t.extent[d] != 1) return false;
    return true;
}

}  // namespace

// src[0]: the handle, src[1..3]: the coordinates, a layer first; the extras: four results.
const Instr* run_texture(Warp& w, const Instr* i, std::uint32_t mask) {
    const unsigned dimensions = i->mode & 3;
    const bool layered = (i->mode & texture_layered) != 0, integer = (i->mode & texture_integer) != 0;
    const std::uint32_t* targets = w.frame->code->extras.data() + i->extra;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<std::uint32_t>(__builtin_ctz(rest));
        const std::uint64_t handle = w.at<const std::uint64_t>(i->src[0])[l];
        const Texture* t = find_texture(*w.block->worker, handle);
        if (t == nullptr) return fail(w, i, Fault::IllegalAddress, l, "no texture object of this context");
        if (!fits(*t, dimensions, layered, integer))
            return fail(w, i, Fault::Unsupported, l, "not supported: a fetch of another kind than the texture");
        std::uint32_t at[3] = {}, layer = 0;
        bool inside = true;
        const auto bits = [&](unsigned n) { return w.at<const std::uint32_t>(i->src[1 + n])[l]; };
        if (layered) layer = bits(0);
        if (layer >= t->layers)
            return fail(w, i, Fault::Unsupported, l, "not supported: a fetch from behind a texture's last layer");
        for (unsigned d = 0; d < dimensions; d++) {
            const std::uint32_t coordinate = bits(d + (layered ? 1 : 0));
            if (integer) {
                at[d] = coordinate;
                inside = inside && coordinate < t->extent[d];
            } else {
                inside = texel_of(float_of_bits(coordinate), *t, d, at[d]) && inside;
            }
        }
        std::uint32_t result[4] = {};
        if (inside) {
            const unsigned bytes = bytes_of(t->format);
            const std::uint64_t address = t->base + (layered ? layer : at[2]) * t->slice + at[1] * t->pitch +
                                          std::uint64_t{at[0]} * bytes * t->channels;
            std::byte* host = nullptr;
            if (!find_global(*w.block->worker, address, std::uint64_t{bytes} * t->channels, false, host))
                return fail_address(w, i, l, address, bytes * t->channels, false, false);
            for (unsigned c = 0; c < t->channels; c++) result[c] = channel(host + c * bytes, *t);
        } else if (!integer) {
            std::memcpy(result, t->border, sizeof result);
        } else if (!t->linear) {
            return fail(w, i, Fault::Unsupported, l, "not supported: an integer coordinate outside of an array");
        }
        for (unsigned c = 0; c < 4; c++) w.at<std::uint32_t>(targets[c])[l] = result[c];
    }
    return i + 1;
}

}  // namespace hpe::soft::exec
