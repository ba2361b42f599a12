// SPDX-License-Identifier: MIT
// Filling device memory with a byte value: linear, 2D and 3D.
#include "api.h"

using namespace hpe::soft::cudart;

namespace {

unsigned char byte(int value) { return static_cast<unsigned char>(value); }

// Calls fill(slice, width, rows) for the runs of rows that a box consists of.
template <class Fill>
cudaError_t fill_box(const cudaPitchedPtr& box, const cudaExtent& extent, Fill&& fill) {
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
    if (extent.height * extent.depth > 1 && box.pitch < extent.width) return cudaErrorInvalidValue;
    if (extent.depth > 1 && box.ysize < extent.height) return cudaErrorInvalidValue;
    // Slices without rows between them are one run.
    const bool one_run = extent.depth == 1 || box.ysize == extent.height;
    const size_t runs = one_run ? 1 : extent.depth;
    const size_t rows = one_run ? extent.height * extent.depth : extent.height;
    for (size_t i = 0; i < runs; ++i) {
        const CUdeviceptr slice = device_pointer(box.ptr) + i * box.pitch * box.ysize;
        if (CUresult r = fill(slice, extent.width, rows)) return as_error(r);
    }
    return cudaSuccess;
}

}  // namespace

HPE_BOTH_FLAVOURS(cudaMemset, ptds, (void* pointer, int value, size_t size), (pointer, value, size)) {
    return with_context(flavour, [&](const Driver& d) {
        return size == 0 ? CUDA_SUCCESS : d.cuMemsetD8(device_pointer(pointer), byte(value), size);
    });
}

HPE_BOTH_FLAVOURS(cudaMemsetAsync, ptsz, (void* pointer, int value, size_t size, cudaStream_t stream),
                  (pointer, value, size, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return size == 0 ? CUDA_SUCCESS : d.cuMemsetD8Async(device_pointer(pointer), byte(value), size, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemset2D, ptds, (void* pointer, size_t pitch, int value, size_t width, size_t height),
                  (pointer, pitch, value, width, height)) {
    return with_context(flavour, [&](const Driver& d) {
        if (width == 0 || height == 0) return cudaSuccess;
        if (height > 1 && pitch < width) return cudaErrorInvalidValue;
        return as_error(d.cuMemsetD2D8(device_pointer(pointer), pitch, byte(value), width, height));
    });
}

HPE_BOTH_FLAVOURS(cudaMemset2DAsync, ptsz,
                  (void* pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
                  (pointer, pitch, value, width, height, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (width == 0 || height == 0) return cudaSuccess;
        if (height > 1 && pitch < width) return cudaErrorInvalidValue;
        return as_error(d.cuMemsetD2D8Async(device_pointer(pointer), pitch, byte(value), width, height, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemset3D, ptds, (cudaPitchedPtr box, int value, cudaExtent extent), (box, value, extent)) {
    return with_context(flavour, [&](const Driver& d) {
        return fill_box(box, extent, [&](CUdeviceptr slice, size_t width, size_t rows) {
            return d.cuMemsetD2D8(slice, box.pitch, byte(value), width, rows);
        });
    });
}

HPE_BOTH_FLAVOURS(cudaMemset3DAsync, ptsz, (cudaPitchedPtr box, int value, cudaExtent extent, cudaStream_t stream),
                  (box, value, extent, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        return fill_box(box, extent, [&](CUdeviceptr slice, size_t width, size_t rows) {
            return d.cuMemsetD2D8Async(slice, box.pitch, byte(value), width, rows, stream);
        });
    });
}
