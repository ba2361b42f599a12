// SPDX-License-Identifier: MIT
// Making texture objects, and what they say of themselves. Whatever would need filtering, or a value that is known to
// hardware only, is refused here, so that no fetch has to.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/device/texture_table.h"
#include "toolchain/softgpu/driver/memory/array.h"
#include "toolchain/softgpu/driver/memory/memory.h"

namespace hpe::soft {
namespace {

using Format = Texture::Format;

// More than CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, as on hardware.
constexpr std::size_t most_linear_width = std::size_t{1} << 30;

std::uint64_t limit(CUdevice_attribute attribute) {
    int value = 0;
    api::cuDeviceGetAttribute(&value, attribute, 0);
    return static_cast<std::uint64_t>(value);
}

Format format_of(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8: return Format::U8;
        case CU_AD_FORMAT_UNSIGNED_INT16: return Format::U16;
        case CU_AD_FORMAT_UNSIGNED_INT32: return Format::U32;
        case CU_AD_FORMAT_SIGNED_INT8: return Format::S8;
        case CU_AD_FORMAT_SIGNED_INT16: return Format::S16;
        case CU_AD_FORMAT_SIGNED_INT32: return Format::S32;
        case CU_AD_FORMAT_HALF: return Format::F16;
        default: return Format::F32;
    }
}

// The memory has to be known to the device; its end is looked at by every fetch.
void check_memory(CUdeviceptr address) {
    require(address != 0 && address % limit(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) == 0);
    require(place_of(address, 1) != Place::Pageable);
}

void describe_array(const CUDA_RESOURCE_DESC& r, Texture& t) {
    const auto array = array_of(r.res.array.hArray);
    const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
    if (d.Flags & CUDA_ARRAY3D_CUBEMAP) fail(not_supported("a texture object of a cubemap"));
    t.format = format_of(d.Format);
    t.channels = static_cast<std::uint8_t>(d.NumChannels);
    t.layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    t.dimensions = static_cast<std::uint8_t>(d.Height == 0 ? 1 : d.Depth == 0 || t.layered ? 2 : 3);
    t.extent[0] = static_cast<std::uint32_t>(d.Width);
    t.extent[1] = static_cast<std::uint32_t>(array->rows());
    t.extent[2] = t.layered ? 1 : static_cast<std::uint32_t>(array->planes());
    t.layers = t.layered ? static_cast<std::uint32_t>(array->planes()) : 1;
    t.base = array->address;
    t.pitch = array->pitch;
    t.slice = array->slice();
}

void describe_linear(const CUDA_RESOURCE_DESC& r, Texture& t) {
    const auto& l = r.res.linear;
    const unsigned element = element_bytes(l.format, l.numChannels);
    check_memory(l.devPtr);
    require(l.sizeInBytes / element <= most_linear_width);
    t.format = format_of(l.format);
    t.channels = static_cast<std::uint8_t>(l.numChannels);
    t.linear = true;
    t.extent[0] = static_cast<std::uint32_t>(l.sizeInBytes / element);
    t.base = l.devPtr;
}

void describe_pitched(const CUDA_RESOURCE_DESC& r, Texture& t) {
    const auto& p = r.res.pitch2D;
    const unsigned element = element_bytes(p.format, p.numChannels);
    check_memory(p.devPtr);
    require(p.width > 0 && p.width <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH));
    require(p.height > 0 && p.height <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT));
    require(p.pitchInBytes % limit(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) == 0);
    require(p.pitchInBytes >= p.width * element);
    require(p.pitchInBytes <= limit(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH));
    t.format = format_of(p.format);
    t.channels = static_cast<std::uint8_t>(p.numChannels);
    t.dimensions = 2;
    t.extent[0] = static_cast<std::uint32_t>(p.width);
    t.extent[1] = static_cast<std::uint32_t>(p.height);
    t.base = p.devPtr;
    t.pitch = p.pitchInBytes;
}

bool is_integer(Format format) { return format != Format::F16 && format != Format::F32; }
unsigned bits_of(Format format) {
    switch (format) {
        case Format::U8:
        case Format::S8: return 8;
        case Format::U16:
        case Format::S16:
        case Format::F16: return 16;
        default: return 32;
    }
}

// A border colour as fetches return it: what the texture's format holds of it. As answered by an H200; nothing: a
// colour of which is not known what hardware makes.
std::optional<std::uint32_t> border_of(const Texture& t, float colour) {
    const auto bits = std::bit_cast<std::uint32_t>(colour);
    if (bits_of(t.format) == 32) return bits;
    const bool is_signed = t.format == Format::S8 || t.format == Format::S16;
    if (t.format == Format::F16) {
        if (std::isnan(colour) || std::isinf(colour)) return {};
        // Toward zero, at most the largest number; eleven bits, less of small ones.
        constexpr float most = 65504, smallest = 0x1p-24f, normal = 0x1p-14f;
        const float size = std::fabs(colour);
        float held = std::min(size, most);
        if (size < normal)
            held = std::trunc(size / smallest) * smallest;
        else if (size < most)
            held = std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) & ~0x1fffu);
        if (colour < 0 && held != size) return {};
        return std::bit_cast<std::uint32_t>(std::copysign(held, colour));
    }
    if (t.integers_as_float) {
        if (std::isnan(colour)) return {};
        const auto most = static_cast<float>((1u << (bits_of(t.format) - (is_signed ? 1 : 0))) - 1);
        const float value = std::clamp(colour, is_signed ? -1.0f : 0.0f, 1.0f) * most;
        // To the nearest, and down between two; how two of below zero are told apart is not known.
        if (value < 0 && value - std::floor(value) == 0.5f) return {};
        return std::bit_cast<std::uint32_t>((std::ceil(value - 0.5f) + 0.0f) / most);  // and zero without a sign
    }
    // The low bits of an integer.
    switch (t.format) {
        case Format::U8: return bits & 0xffu;
        case Format::U16: return bits & 0xffffu;
        case Format::S8: return static_cast<std::uint32_t>(std::int32_t{static_cast<std::int8_t>(bits)});
        default: return static_cast<std::uint32_t>(std::int32_t{static_cast<std::int16_t>(bits)});
    }
}

void describe_reading(const CUDA_TEXTURE_DESC& d, Texture& t) {
    constexpr unsigned known = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                               CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;
    require((d.flags & ~known) == 0 && !(d.flags & CU_TRSF_SEAMLESS_CUBEMAP));
    require(d.filterMode == CU_TR_FILTER_MODE_POINT || d.filterMode == CU_TR_FILTER_MODE_LINEAR);
    if (d.filterMode != CU_TR_FILTER_MODE_POINT && !t.linear) fail(not_supported("texture filtering (linear)"));
    if (d.flags & CU_TRSF_SRGB) fail(not_supported("a texture object that converts from sRGB"));
    t.normalized = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    t.integers_as_float = !(d.flags & CU_TRSF_READ_AS_INTEGER) && is_integer(t.format) && bits_of(t.format) < 32;
    if (t.linear) return;
    bool border = false;
    require(d.mipmapFilterMode == CU_TR_FILTER_MODE_POINT || d.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR);
    for (unsigned i = 0; i < t.dimensions; ++i) {
        require(d.addressMode[i] >= CU_TR_ADDRESS_MODE_WRAP && d.addressMode[i] <= CU_TR_ADDRESS_MODE_BORDER);
        switch (d.addressMode[i]) {
            // The two that need normalized coordinates fall back to this one.
            case CU_TR_ADDRESS_MODE_WRAP:
                t.address[i] = t.normalized ? Texture::Address::Wrap : Texture::Address::Clamp;
                break;
            case CU_TR_ADDRESS_MODE_MIRROR:
                t.address[i] = t.normalized ? Texture::Address::Mirror : Texture::Address::Clamp;
                break;
            case CU_TR_ADDRESS_MODE_BORDER: t.address[i] = Texture::Address::Border; break;
            default: t.address[i] = Texture::Address::Clamp;
        }
        border = border || t.address[i] == Texture::Address::Border;
    }
    for (unsigned c = 0; border && c < t.channels; ++c) {
        const auto held = border_of(t, d.borderColor[c]);
        if (!held) fail(not_supported("a border colour that the texture's format does not hold"));
        t.border[c] = *held;
    }
}

TextureObject object_of(CUtexObject handle) {
    current();
    TextureObject object;
    require(driver().textures.find(handle, object));
    return object;
}

}  // namespace

CUresult api::cuTexObjectCreate(CUtexObject* out, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* reading,
                                const CUDA_RESOURCE_VIEW_DESC* view) {
    require(out != nullptr && resource != nullptr && reading != nullptr && resource->flags == 0);
    Context& context = current();
    auto texture = std::make_shared<Texture>();
    switch (resource->resType) {
        case CU_RESOURCE_TYPE_ARRAY: describe_array(*resource, *texture); break;
        case CU_RESOURCE_TYPE_LINEAR: describe_linear(*resource, *texture); break;
        case CU_RESOURCE_TYPE_PITCH2D: describe_pitched(*resource, *texture); break;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: fail(not_supported("a texture object of a mipmapped array"));
        default: fail(CUDA_ERROR_INVALID_VALUE);
    }
    require(view == nullptr || resource->resType == CU_RESOURCE_TYPE_ARRAY);
    if (view != nullptr) fail(not_supported("a texture object with a resource view"));
    describe_reading(*reading, *texture);
    *out = driver().textures.add({&context, *resource, *reading, std::move(texture)});
    return CUDA_SUCCESS;
}

CUresult api::cuTexObjectDestroy(CUtexObject handle) {
    current();
    driver().textures.remove(handle);  // what is none any more is no error
    return CUDA_SUCCESS;
}

CUresult api::cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* out, CUtexObject handle) {
    require(out != nullptr);
    *out = object_of(handle).resource;
    return CUDA_SUCCESS;
}
CUresult api::cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* out, CUtexObject handle) {
    require(out != nullptr);
    *out = object_of(handle).description;
    return CUDA_SUCCESS;
}
// No object has a view.
CUresult api::cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* out, CUtexObject handle) {
    require(out != nullptr);
    object_of(handle);
    *out = {};
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format format, unsigned channels,
                                                 CUdevice dev) {
    require(width != nullptr);
    device_at(dev);
    element_bytes(format, channels);
    *width = most_linear_width;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
