// SPDX-License-Identifier: MIT
// Making CUDA arrays, and where a position in one is.
#include "toolchain/softgpu/driver/memory/array.h"

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

constexpr unsigned known_flags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE |
                                 CUDA_ARRAY3D_COLOR_ATTACHMENT | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                                 CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
constexpr unsigned supported_flags =
    CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;

std::size_t limit(CUdevice_attribute attribute, const Device& device) {
    int value = 0;
    api::cuDeviceGetAttribute(&value, attribute, device.ordinal);
    return static_cast<std::size_t>(value);
}

// The table in the description of cuArray3DCreate.
void check_extents(const CUDA_ARRAY3D_DESCRIPTOR& d, const Device& device) {
    const auto within = [&](CUdevice_attribute width, CUdevice_attribute height, CUdevice_attribute depth) {
        return d.Width <= limit(width, device) && d.Height <= limit(height, device) && d.Depth <= limit(depth, device);
    };
#define ATTRIBUTE(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name
#define WITHIN(width, height, depth) within(ATTRIBUTE(width), ATTRIBUTE(height), ATTRIBUTE(depth))
    const bool layered = d.Flags & CUDA_ARRAY3D_LAYERED, cubemap = d.Flags & CUDA_ARRAY3D_CUBEMAP;
    const bool surface = d.Flags & CUDA_ARRAY3D_SURFACE_LDST;
    require(d.Width > 0);
    require(!(d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) || (d.Height > 0 && d.Depth == 0 && !layered && !cubemap));
    if (cubemap) {
        require(d.Width == d.Height && d.Depth > 0 && (layered ? d.Depth % 6 == 0 : d.Depth == 6));
        require(d.Width <=
                limit(layered ? ATTRIBUTE(TEXTURECUBEMAP_LAYERED_WIDTH) : ATTRIBUTE(TEXTURECUBEMAP_WIDTH), device));
        require(!layered || d.Depth <= limit(ATTRIBUTE(TEXTURECUBEMAP_LAYERED_LAYERS), device));
        require(!surface || d.Width <= limit(ATTRIBUTE(SURFACECUBEMAP_WIDTH), device));
    } else if (layered && d.Height == 0) {
        require(d.Depth > 0);
        require(WITHIN(TEXTURE1D_LAYERED_WIDTH, TEXTURE1D_LAYERED_WIDTH, TEXTURE1D_LAYERED_LAYERS));
        require(!surface || WITHIN(SURFACE1D_LAYERED_WIDTH, SURFACE1D_LAYERED_WIDTH, SURFACE1D_LAYERED_LAYERS));
    } else if (layered) {
        require(d.Depth > 0);
        require(WITHIN(TEXTURE2D_LAYERED_WIDTH, TEXTURE2D_LAYERED_HEIGHT, TEXTURE2D_LAYERED_LAYERS));
        require(!surface || WITHIN(SURFACE2D_LAYERED_WIDTH, SURFACE2D_LAYERED_HEIGHT, SURFACE2D_LAYERED_LAYERS));
    } else if (d.Depth > 0) {
        require(d.Height > 0);
        require(WITHIN(TEXTURE3D_WIDTH, TEXTURE3D_HEIGHT, TEXTURE3D_DEPTH) ||
                WITHIN(TEXTURE3D_WIDTH_ALTERNATE, TEXTURE3D_HEIGHT_ALTERNATE, TEXTURE3D_DEPTH_ALTERNATE));
        require(!surface || WITHIN(SURFACE3D_WIDTH, SURFACE3D_HEIGHT, SURFACE3D_DEPTH));
    } else if (d.Height > 0) {
        require(WITHIN(TEXTURE2D_WIDTH, TEXTURE2D_HEIGHT, TEXTURE2D_HEIGHT));
        require(!surface || WITHIN(SURFACE2D_WIDTH, SURFACE2D_HEIGHT, SURFACE2D_HEIGHT));
        require(!(d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) ||
                WITHIN(TEXTURE2D_GATHER_WIDTH, TEXTURE2D_GATHER_HEIGHT, TEXTURE2D_GATHER_HEIGHT));
    } else {
        require(d.Width <= limit(ATTRIBUTE(TEXTURE1D_WIDTH), device));
        require(!surface || d.Width <= limit(ATTRIBUTE(SURFACE1D_WIDTH), device));
    }
#undef WITHIN
#undef ATTRIBUTE
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& d) {
    Context& context = current();
    forbid_unsafe_call();
    require((d.Flags & ~known_flags) == 0);
    if (d.Flags & ~supported_flags)
        fail(not_supported("an array for depth, colour attachments, video, sparse or deferred mapping"));
    auto array = std::make_shared<Array>();
    array->element = element_bytes(d.Format, d.NumChannels);
    check_extents(d, context.device());
    array->context = &context;
    array->descriptor = d;
    array->pitch = d.Width * array->element;
    array->address = allocate_device(context, array->bytes(), true);
    require(array->address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    *out = array->handle();
    driver().arrays.add(std::move(array));
    return CUDA_SUCCESS;
}

}  // namespace

unsigned channel_bytes(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8: return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF: return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT: return 4;
        default: return 0;
    }
}

unsigned element_bytes(CUarray_format format, unsigned channels) {
    require(channels == 1 || channels == 2 || channels == 4);
    const unsigned bytes = channel_bytes(format);
    if (bytes != 0) return bytes * channels;
    // Normalized, block-compressed, planar and packed ones.
    require(format == CU_AD_FORMAT_UNORM_INT_101010_2 ||
            (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_SNORM_INT16X4));
    fail(not_supported("an array or texture of a packed, planar, compressed or normalized format"));
}

std::shared_ptr<Array> array_of(CUarray handle) {
    auto array = driver().arrays.find(handle);
    require(array != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return array;
}

std::shared_ptr<Array> array_at(std::uint64_t address) {
    return driver().arrays.find_if(
        [&](const Array& a) { return address >= a.address && address - a.address < a.bytes(); });
}

void forget_arrays(Context& context) {
    driver().arrays.remove_if([&](const Array& a) { return a.context == &context; });
}

CUresult api::cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
    require(out != nullptr && d != nullptr);
    return create(out, *d);
}
CUresult api::cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
    require(out != nullptr && d != nullptr);
    return create(out, {d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
}

CUresult api::cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
    require(out != nullptr);
    current();
    *out = array_of(handle)->descriptor;
    return CUDA_SUCCESS;
}
CUresult api::cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
    require(out != nullptr);
    current();
    const CUDA_ARRAY3D_DESCRIPTOR& d = array_of(handle)->descriptor;
    *out = {d.Width, d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
}

CUresult api::cuArrayDestroy(CUarray handle) {
    Context& context = current();
    forbid_unsafe_call();
    const auto array = array_of(handle);
    // Work that uses the array may be in flight in its own context, and in this one through peer access.
    synchronize(*array->context);
    if (array->context != &context) synchronize(context);
    require(driver().arrays.remove(handle) != nullptr, CUDA_ERROR_INVALID_HANDLE);
    if (const auto memory = driver().addresses.remove(array->address)) end_allocation(*memory);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
