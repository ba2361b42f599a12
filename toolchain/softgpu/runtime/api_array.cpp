// SPDX-License-Identifier: MIT
// CUDA arrays: allocation, what they are, and copies to and from them.
#include "api.h"
#include "copy_params.h"

using namespace hpe::soft::cudart;

namespace {

CUarray driver_array(cudaArray_const_t array) {
    return reinterpret_cast<CUarray>(const_cast<struct cudaArray*>(array));
}

bool driver_format(const cudaChannelFormatDesc& c, CUarray_format& format, unsigned& channels) {
    const int bits[] = {c.x, c.y, c.z, c.w};
    channels = 0;
    while (channels < 4 && bits[channels] != 0) ++channels;
    for (unsigned i = 1; i < 4; ++i) {
        if (bits[i] != (i < channels ? c.x : 0)) return false;
    }
    if (channels == 0 || channels == 3) return false;
    switch (c.f) {
        case cudaChannelFormatKindUnsigned:
            format = c.x == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
                     : c.x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                                 : CU_AD_FORMAT_UNSIGNED_INT32;
            return c.x == 8 || c.x == 16 || c.x == 32;
        case cudaChannelFormatKindSigned:
            format = c.x == 8    ? CU_AD_FORMAT_SIGNED_INT8
                     : c.x == 16 ? CU_AD_FORMAT_SIGNED_INT16
                                 : CU_AD_FORMAT_SIGNED_INT32;
            return c.x == 8 || c.x == 16 || c.x == 32;
        case cudaChannelFormatKindFloat:
            format = c.x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
            return c.x == 16 || c.x == 32;
        default: return false;
    }
}

bool runtime_format(const CUDA_ARRAY3D_DESCRIPTOR& a, cudaChannelFormatDesc& c) {
    int bits = 0;
    switch (a.Format) {
        case CU_AD_FORMAT_UNSIGNED_INT8: bits = 8, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_UNSIGNED_INT16: bits = 16, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_UNSIGNED_INT32: bits = 32, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_SIGNED_INT8: bits = 8, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_SIGNED_INT16: bits = 16, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_SIGNED_INT32: bits = 32, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_HALF: bits = 16, c.f = cudaChannelFormatKindFloat; break;
        case CU_AD_FORMAT_FLOAT: bits = 32, c.f = cudaChannelFormatKindFloat; break;
        default: return false;
    }
    c.x = bits;
    c.y = a.NumChannels > 1 ? bits : 0;
    c.z = c.w = a.NumChannels > 2 ? bits : 0;
    return true;
}

// A copy of rows between an array and memory, or two arrays.
struct Rows {
    CUDA_MEMCPY2D c{};
    Rows(size_t width, size_t height) { c.WidthInBytes = width, c.Height = height; }
    void from_array(cudaArray_const_t a, size_t x, size_t y) {
        c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = driver_array(a), c.srcXInBytes = x, c.srcY = y;
    }
    void to_array(cudaArray_t a, size_t x, size_t y) {
        c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = driver_array(a), c.dstXInBytes = x, c.dstY = y;
    }
    bool from_memory(const void* p, size_t pitch, cudaMemcpyKind kind) {
        CUmemorytype other{};
        c.srcHost = p, c.srcDevice = device_pointer(p), c.srcPitch = pitch;
        return memory_types(kind, c.srcMemoryType, other) && other != CU_MEMORYTYPE_HOST;
    }
    bool to_memory(void* p, size_t pitch, cudaMemcpyKind kind) {
        CUmemorytype other{};
        c.dstHost = p, c.dstDevice = device_pointer(p), c.dstPitch = pitch;
        return memory_types(kind, other, c.dstMemoryType) && other != CU_MEMORYTYPE_HOST;
    }
};

}  // namespace

extern "C" {

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
    return with_context([&](const Driver& d) {
        CUDA_ARRAY3D_DESCRIPTOR a{};
        if (array == nullptr || format == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!driver_format(*format, a.Format, a.NumChannels)) return CUDA_ERROR_INVALID_VALUE;
        a.Width = extent.width, a.Height = extent.height, a.Depth = extent.depth;
        a.Flags = flags;
        return d.cuArray3DCreate(reinterpret_cast<CUarray*>(array), &a);
    });
}

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* format, size_t width, size_t height,
                            unsigned flags) {
    return cudaMalloc3DArray(array, format, cudaExtent{width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    return with_context(
        [&](const Driver& d) { return array == nullptr ? CUDA_SUCCESS : d.cuArrayDestroy(driver_array(array)); });
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* format, cudaExtent* extent, unsigned* flags, cudaArray_t array) {
    return with_context([&](const Driver& d) {
        CUDA_ARRAY3D_DESCRIPTOR a{};
        cudaChannelFormatDesc found{};
        if (CUresult r = d.cuArray3DGetDescriptor(&a, driver_array(array))) return r;
        if (!runtime_format(a, found)) return not_supported("an array of this format");
        if (format != nullptr) *format = found;
        if (extent != nullptr) *extent = {a.Width, a.Height, a.Depth};
        if (flags != nullptr) *flags = a.Flags;
        return CUDA_SUCCESS;
    });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
    return cudaArrayGetInfo(format, nullptr, nullptr, const_cast<cudaArray_t>(array));
}
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DToArray, ptds,
                  (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width, size_t height,
                   cudaMemcpyKind kind),
                  (to, x, y, from, pitch, width, height, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        Rows rows(width, height);
        rows.to_array(to, x, y);
        if (!rows.from_memory(from, pitch, kind)) return cudaErrorInvalidMemcpyDirection;
        return as_error(d.cuMemcpy2DUnaligned(&rows.c));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DToArrayAsync, ptsz,
                  (cudaArray_t to, size_t x, size_t y, const void* from, size_t pitch, size_t width, size_t height,
                   cudaMemcpyKind kind, cudaStream_t stream),
                  (to, x, y, from, pitch, width, height, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        Rows rows(width, height);
        rows.to_array(to, x, y);
        if (!rows.from_memory(from, pitch, kind)) return cudaErrorInvalidMemcpyDirection;
        return as_error(d.cuMemcpy2DAsync(&rows.c, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DFromArray, ptds,
                  (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width, size_t height,
                   cudaMemcpyKind kind),
                  (to, pitch, from, x, y, width, height, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        Rows rows(width, height);
        rows.from_array(from, x, y);
        if (!rows.to_memory(to, pitch, kind)) return cudaErrorInvalidMemcpyDirection;
        return as_error(d.cuMemcpy2DUnaligned(&rows.c));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DFromArrayAsync, ptsz,
                  (void* to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width, size_t height,
                   cudaMemcpyKind kind, cudaStream_t stream),
                  (to, pitch, from, x, y, width, height, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        Rows rows(width, height);
        rows.from_array(from, x, y);
        if (!rows.to_memory(to, pitch, kind)) return cudaErrorInvalidMemcpyDirection;
        return as_error(d.cuMemcpy2DAsync(&rows.c, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DArrayToArray, ptds,
                  (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x, size_t from_y,
                   size_t width, size_t height, cudaMemcpyKind kind),
                  (to, to_x, to_y, from, from_x, from_y, width, height, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
        Rows rows(width, height);
        rows.to_array(to, to_x, to_y);
        rows.from_array(from, from_x, from_y);
        return as_error(d.cuMemcpy2DUnaligned(&rows.c));
    });
}
