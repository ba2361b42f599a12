// SPDX-License-Identifier: MIT
// Texture objects: the runtime's descriptions of memory and of how to read it, in the driver's words and back.
#include <utility>

#include "api.h"
#include "array_format.h"

using namespace hpe::soft::cudart;

namespace {

cudaError_t driver_resource(const cudaResourceDesc& from, CUDA_RESOURCE_DESC& to) {
    to = {};
    to.flags = from.flags;
    switch (from.resType) {
        case cudaResourceTypeArray:
            to.resType = CU_RESOURCE_TYPE_ARRAY;
            to.res.array.hArray = driver_array(from.res.array.array);
            return cudaSuccess;
        case cudaResourceTypeMipmappedArray:
            to.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
            to.res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(from.res.mipmap.mipmap);
            return cudaSuccess;
        case cudaResourceTypeLinear: {
            to.resType = CU_RESOURCE_TYPE_LINEAR;
            auto& l = to.res.linear;
            l.devPtr = device_pointer(from.res.linear.devPtr);
            l.sizeInBytes = from.res.linear.sizeInBytes;
            return driver_format(from.res.linear.desc, l.format, l.numChannels) ? cudaSuccess
                                                                                : cudaErrorInvalidChannelDescriptor;
        }
        case cudaResourceTypePitch2D: {
            to.resType = CU_RESOURCE_TYPE_PITCH2D;
            auto& p = to.res.pitch2D;
            p.devPtr = device_pointer(from.res.pitch2D.devPtr);
            p.width = from.res.pitch2D.width;
            p.height = from.res.pitch2D.height;
            p.pitchInBytes = from.res.pitch2D.pitchInBytes;
            return driver_format(from.res.pitch2D.desc, p.format, p.numChannels) ? cudaSuccess
                                                                                 : cudaErrorInvalidChannelDescriptor;
        }
        default: return cudaErrorInvalidValue;
    }
}

void runtime_resource(const CUDA_RESOURCE_DESC& from, cudaResourceDesc& to) {
    to = {};
    to.flags = from.flags;
    switch (from.resType) {
        case CU_RESOURCE_TYPE_LINEAR:
            to.resType = cudaResourceTypeLinear;
            to.res.linear.devPtr = reinterpret_cast<void*>(from.res.linear.devPtr);
            to.res.linear.sizeInBytes = from.res.linear.sizeInBytes;
            runtime_format(from.res.linear.format, from.res.linear.numChannels, to.res.linear.desc);
            break;
        case CU_RESOURCE_TYPE_PITCH2D:
            to.resType = cudaResourceTypePitch2D;
            to.res.pitch2D.devPtr = reinterpret_cast<void*>(from.res.pitch2D.devPtr);
            to.res.pitch2D.width = from.res.pitch2D.width;
            to.res.pitch2D.height = from.res.pitch2D.height;
            to.res.pitch2D.pitchInBytes = from.res.pitch2D.pitchInBytes;
            runtime_format(from.res.pitch2D.format, from.res.pitch2D.numChannels, to.res.pitch2D.desc);
            break;
        default:  // of mipmapped arrays there are none
            to.resType = cudaResourceTypeArray;
            to.res.array.array = reinterpret_cast<cudaArray_t>(from.res.array.hArray);
    }
}

constexpr std::pair<int cudaTextureDesc::*, unsigned> flags[] = {
    {&cudaTextureDesc::sRGB, CU_TRSF_SRGB},
    {&cudaTextureDesc::normalizedCoords, CU_TRSF_NORMALIZED_COORDINATES},
    {&cudaTextureDesc::disableTrilinearOptimization, CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION},
    {&cudaTextureDesc::seamlessCubemap, CU_TRSF_SEAMLESS_CUBEMAP},
};

CUarray_format format_of(const Driver& d, const CUDA_RESOURCE_DESC& resource) {
    CUDA_ARRAY3D_DESCRIPTOR array{};
    switch (resource.resType) {
        case CU_RESOURCE_TYPE_LINEAR: return resource.res.linear.format;
        case CU_RESOURCE_TYPE_PITCH2D: return resource.res.pitch2D.format;
        case CU_RESOURCE_TYPE_ARRAY:
            if (d.cuArray3DGetDescriptor(&array, resource.res.array.hArray) == CUDA_SUCCESS) return array.Format;
            [[fallthrough]];
        default: return CU_AD_FORMAT_FLOAT;
    }
}

bool is_float(CUarray_format format) { return format == CU_AD_FORMAT_FLOAT || format == CU_AD_FORMAT_HALF; }
// Integers that may be read as floats between -1 and 1.
bool is_small_integer(CUarray_format format) {
    return !is_float(format) && format != CU_AD_FORMAT_SIGNED_INT32 && format != CU_AD_FORMAT_UNSIGNED_INT32;
}

// The enumerations of both APIs have the same numbers.
CUDA_TEXTURE_DESC driver_reading(const cudaTextureDesc& from, CUarray_format format) {
    CUDA_TEXTURE_DESC to{};
    for (int i = 0; i < 3; ++i) to.addressMode[i] = static_cast<CUaddress_mode>(from.addressMode[i]);
    to.filterMode = static_cast<CUfilter_mode>(from.filterMode);
    for (const auto& [member, flag] : flags)
        if (from.*member != 0) to.flags |= flag;
    // Where there is a choice.
    if (from.readMode == cudaReadModeElementType && is_small_integer(format)) to.flags |= CU_TRSF_READ_AS_INTEGER;
    to.maxAnisotropy = from.maxAnisotropy;
    to.mipmapFilterMode = static_cast<CUfilter_mode>(from.mipmapFilterMode);
    to.mipmapLevelBias = from.mipmapLevelBias;
    to.minMipmapLevelClamp = from.minMipmapLevelClamp;
    to.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
    for (int i = 0; i < 4; ++i) to.borderColor[i] = from.borderColor[i];
    return to;
}

cudaTextureDesc runtime_reading(const CUDA_TEXTURE_DESC& from, CUarray_format format) {
    cudaTextureDesc to{};
    for (int i = 0; i < 3; ++i) to.addressMode[i] = static_cast<cudaTextureAddressMode>(from.addressMode[i]);
    to.filterMode = static_cast<cudaTextureFilterMode>(from.filterMode);
    for (const auto& [member, flag] : flags) to.*member = (from.flags & flag) != 0 ? 1 : 0;
    const bool as_float = (from.flags & CU_TRSF_READ_AS_INTEGER) == 0 && is_small_integer(format);
    to.readMode = as_float ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
    to.maxAnisotropy = from.maxAnisotropy;
    to.mipmapFilterMode = static_cast<cudaTextureFilterMode>(from.mipmapFilterMode);
    to.mipmapLevelBias = from.mipmapLevelBias;
    to.minMipmapLevelClamp = from.minMipmapLevelClamp;
    to.maxMipmapLevelClamp = from.maxMipmapLevelClamp;
    for (int i = 0; i < 4; ++i) to.borderColor[i] = from.borderColor[i];
    return to;
}

// Integers can only be filtered when they are read as normalized floats. That holds for linear memory, too, of which
// the filter mode is otherwise ignored.
cudaError_t check_reading(const cudaTextureDesc& reading, CUarray_format format) {
    const bool as_float = reading.readMode == cudaReadModeNormalizedFloat, small = is_small_integer(format);
    if (reading.filterMode == cudaFilterModeLinear && !is_float(format) && !(as_float && small))
        return cudaErrorInvalidFilterSetting;
    return as_float && !small ? cudaErrorInvalidNormSetting : cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaCreateTextureObject(cudaTextureObject_t* texture, const cudaResourceDesc* resource,
                                    const cudaTextureDesc* reading, const cudaResourceViewDesc* view) {
    return with_context([&](const Driver& d) {
        if (texture == nullptr || resource == nullptr) return cudaErrorInvalidValue;
        if (reading == nullptr) return cudaErrorInvalidResourceHandle;
        CUDA_RESOURCE_DESC r{};
        if (cudaError_t e = driver_resource(*resource, r)) return e;
        const CUarray_format format = format_of(d, r);
        if (cudaError_t e = check_reading(*reading, format)) return e;
        const CUDA_TEXTURE_DESC t = driver_reading(*reading, format);
        // The structures of a view are the same in both APIs.
        static_assert(sizeof(cudaResourceViewDesc) == sizeof(CUDA_RESOURCE_VIEW_DESC));
        return as_error(d.cuTexObjectCreate(texture, &r, &t, reinterpret_cast<const CUDA_RESOURCE_VIEW_DESC*>(view)));
    });
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t texture) {
    // Like freeing nothing, destroying no object is no error.
    return with_context([&](const Driver& d) { return texture == 0 ? CUDA_SUCCESS : d.cuTexObjectDestroy(texture); });
}

cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* resource, cudaTextureObject_t texture) {
    return with_context([&](const Driver& d) {
        if (resource == nullptr) return cudaErrorInvalidValue;
        CUDA_RESOURCE_DESC r{};
        if (CUresult e = d.cuTexObjectGetResourceDesc(&r, texture)) return as_error(e);
        runtime_resource(r, *resource);
        return cudaSuccess;
    });
}

cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* reading, cudaTextureObject_t texture) {
    return with_context([&](const Driver& d) {
        if (reading == nullptr) return cudaErrorInvalidResourceHandle;
        CUDA_TEXTURE_DESC t{};
        CUDA_RESOURCE_DESC r{};
        if (CUresult e = d.cuTexObjectGetTextureDesc(&t, texture)) return as_error(e);
        if (CUresult e = d.cuTexObjectGetResourceDesc(&r, texture)) return as_error(e);
        *reading = runtime_reading(t, format_of(d, r));
        return cudaSuccess;
    });
}

cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* view, cudaTextureObject_t texture) {
    return with_context([&](const Driver& d) {
        return d.cuTexObjectGetResourceViewDesc(reinterpret_cast<CUDA_RESOURCE_VIEW_DESC*>(view), texture);
    });
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t* width, const cudaChannelFormatDesc* format, int device) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        CUarray_format driver_one{};
        unsigned channels = 0;
        if (width == nullptr || format == nullptr) return cudaErrorInvalidValue;
        if (!driver_format(*format, driver_one, channels)) return cudaErrorInvalidChannelDescriptor;
        return as_error(d.cuDeviceGetTexture1DLinearMaxWidth(width, driver_one, channels, handle));
    });
}
}
