// SPDX-License-Identifier: MIT
// CUDA arrays: allocation, what they are, and copies to and from them.
#include "api.h"
#include "array_format.h"
#include "copy_params.h"

using namespace hpe::soft::cudart;

namespace {

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

// What cudaMemcpyToArray and its like copy: bytes from a place in an array on, row after row.
struct Run {
    CUarray array = nullptr;
    size_t x = 0, y = 0, row = 0;  // where it begins; bytes of a row

    cudaError_t check(const Driver& d, size_t count) {
        CUDA_ARRAY3D_DESCRIPTOR a{};
        if (CUresult r = d.cuArray3DGetDescriptor(&a, array)) return as_error(r);
        row = a.Width * element_bytes(d, reinterpret_cast<cudaArray_const_t>(array));
        const size_t rows = a.Height != 0 ? a.Height : 1;
        if (a.Depth != 0 || row == 0 || x >= row || y >= rows) return cudaErrorInvalidValue;
        return count > (rows - y) * row - x ? cudaErrorInvalidValue : cudaSuccess;
    }
    // The rectangle at the beginning of what is left: the rest of a row, or full rows.
    Rows next(size_t count) const {
        if (x != 0 || count < row) return {count < row - x ? count : row - x, 1};
        return {row, count / row};
    }
    void advance(size_t count) {
        x += count;
        y += x / row;
        x %= row;
    }
};

template <class Copy>
cudaError_t to_array(const Driver& d, cudaArray_t array, size_t x, size_t y, const void* from, size_t count,
                     cudaMemcpyKind kind, Copy copy) {
    Run run{driver_array(array), x, y};
    if (cudaError_t e = run.check(d, count)) return e;
    const char* source = static_cast<const char*>(from);
    while (count > 0) {
        Rows rows = run.next(count);
        rows.to_array(array, run.x, run.y);
        if (!rows.from_memory(source, rows.c.WidthInBytes, kind)) return cudaErrorInvalidMemcpyDirection;
        if (CUresult r = copy(&rows.c)) return as_error(r);
        const size_t bytes = rows.c.WidthInBytes * rows.c.Height;
        run.advance(bytes), source += bytes, count -= bytes;
    }
    return cudaSuccess;
}

template <class Copy>
cudaError_t from_array(const Driver& d, void* to, cudaArray_const_t array, size_t x, size_t y, size_t count,
                       cudaMemcpyKind kind, Copy copy) {
    Run run{driver_array(array), x, y};
    if (cudaError_t e = run.check(d, count)) return e;
    char* target = static_cast<char*>(to);
    while (count > 0) {
        Rows rows = run.next(count);
        rows.from_array(array, run.x, run.y);
        if (!rows.to_memory(target, rows.c.WidthInBytes, kind)) return cudaErrorInvalidMemcpyDirection;
        if (CUresult r = copy(&rows.c)) return as_error(r);
        const size_t bytes = rows.c.WidthInBytes * rows.c.Height;
        run.advance(bytes), target += bytes, count -= bytes;
    }
    return cudaSuccess;
}

}  // namespace

extern "C" {

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* format, cudaExtent extent,
                              unsigned flags) {
    return with_context([&](const Driver& d) {
        CUDA_ARRAY3D_DESCRIPTOR a{};
        if (array == nullptr || format == nullptr) return cudaErrorInvalidValue;
        if (!driver_format(*format, a.Format, a.NumChannels)) return cudaErrorInvalidChannelDescriptor;
        a.Width = extent.width, a.Height = extent.height, a.Depth = extent.depth;
        a.Flags = flags;
        return as_error(d.cuArray3DCreate(reinterpret_cast<CUarray*>(array), &a));
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
        if (!runtime_format(a.Format, a.NumChannels, found)) return not_supported("an array of this format");
        if (format != nullptr) *format = found;
        if (extent != nullptr) *extent = {a.Width, a.Height, a.Depth};
        if (flags != nullptr) *flags = a.Flags;
        return CUDA_SUCCESS;
    });
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* format, cudaArray_const_t array) {
    if (format == nullptr) return record(cudaErrorInvalidValue);
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
        if (height > 1 && pitch < width) return cudaErrorInvalidPitchValue;
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
        if (height > 1 && pitch < width) return cudaErrorInvalidPitchValue;
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
        if (height > 1 && pitch < width) return cudaErrorInvalidPitchValue;
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
        if (height > 1 && pitch < width) return cudaErrorInvalidPitchValue;
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

// The older forms: bytes in the order of the array's rows.
HPE_BOTH_FLAVOURS(cudaMemcpyToArray, ptds,
                  (cudaArray_t to, size_t x, size_t y, const void* from, size_t count, cudaMemcpyKind kind),
                  (to, x, y, from, count, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        return to_array(d, to, x, y, from, count, kind, [&](auto* c) { return d.cuMemcpy2DUnaligned(c); });
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyToArrayAsync, ptsz,
                  (cudaArray_t to, size_t x, size_t y, const void* from, size_t count, cudaMemcpyKind kind,
                   cudaStream_t stream),
                  (to, x, y, from, count, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return to_array(d, to, x, y, from, count, kind, [&](auto* c) { return d.cuMemcpy2DAsync(c, stream); });
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyFromArray, ptds,
                  (void* to, cudaArray_const_t from, size_t x, size_t y, size_t count, cudaMemcpyKind kind),
                  (to, from, x, y, count, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        return from_array(d, to, from, x, y, count, kind, [&](auto* c) { return d.cuMemcpy2DUnaligned(c); });
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyFromArrayAsync, ptsz,
                  (void* to, cudaArray_const_t from, size_t x, size_t y, size_t count, cudaMemcpyKind kind,
                   cudaStream_t stream),
                  (to, from, x, y, count, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return from_array(d, to, from, x, y, count, kind, [&](auto* c) { return d.cuMemcpy2DAsync(c, stream); });
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyArrayToArray, ptds,
                  (cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x, size_t from_y,
                   size_t count, cudaMemcpyKind kind),
                  (to, to_x, to_y, from, from_x, from_y, count, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
        Run target{driver_array(to), to_x, to_y}, source{driver_array(from), from_x, from_y};
        if (cudaError_t e = target.check(d, count)) return e;
        if (cudaError_t e = source.check(d, count)) return e;
        while (count > 0) {
            // What one row of each holds.
            const size_t here = target.row - target.x, there = source.row - source.x,
                         most = here < there ? here : there;
            Rows rows(count < most ? count : most, 1);
            rows.to_array(to, target.x, target.y);
            rows.from_array(from, source.x, source.y);
            if (CUresult r = d.cuMemcpy2DUnaligned(&rows.c)) return as_error(r);
            target.advance(rows.c.WidthInBytes), source.advance(rows.c.WidthInBytes), count -= rows.c.WidthInBytes;
        }
        return cudaSuccess;
    });
}
