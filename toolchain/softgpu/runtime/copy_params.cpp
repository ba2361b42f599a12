// SPDX-License-Identifier: MIT
// The runtime gives positions in elements when an array takes part and in bytes otherwise; the driver always in bytes.
#include "copy_params.h"

#include "array_format.h"
#include "context.h"

namespace hpe::soft::cudart {
namespace {

size_t format_bytes(CUarray_format format) {
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

// The parts that cudaMemcpy3DParms and cudaMemcpy3DPeerParms share.
template <class Copy, class Params>
cudaError_t describe(const Driver& d, Copy& c, const Params& p, CUmemorytype source, CUmemorytype destination) {
    if ((p.srcArray != nullptr) == (p.srcPtr.ptr != nullptr) || (p.dstArray != nullptr) == (p.dstPtr.ptr != nullptr)) {
        return cudaErrorInvalidValue;
    }
    const size_t source_element = p.srcArray != nullptr ? element_bytes(d, p.srcArray) : 1;
    const size_t destination_element = p.dstArray != nullptr ? element_bytes(d, p.dstArray) : 1;
    if (source_element == 0 || destination_element == 0) return cudaErrorInvalidResourceHandle;
    if (p.srcArray != nullptr && p.dstArray != nullptr && source_element != destination_element) {
        return cudaErrorInvalidValue;
    }
    c = {};
    c.WidthInBytes = p.extent.width * (p.srcArray != nullptr ? source_element : destination_element);
    c.Height = p.extent.height;
    c.Depth = p.extent.depth;

    c.srcXInBytes = p.srcPos.x * source_element;
    c.srcY = p.srcPos.y;
    c.srcZ = p.srcPos.z;
    c.srcPitch = p.srcPtr.pitch;
    c.srcHeight = p.srcPtr.ysize;
    c.srcMemoryType = p.srcArray != nullptr ? CU_MEMORYTYPE_ARRAY : source;
    c.srcArray = driver_array(p.srcArray);
    c.srcHost = p.srcPtr.ptr;
    c.srcDevice = reinterpret_cast<CUdeviceptr>(p.srcPtr.ptr);

    c.dstXInBytes = p.dstPos.x * destination_element;
    c.dstY = p.dstPos.y;
    c.dstZ = p.dstPos.z;
    c.dstPitch = p.dstPtr.pitch;
    c.dstHeight = p.dstPtr.ysize;
    c.dstMemoryType = p.dstArray != nullptr ? CU_MEMORYTYPE_ARRAY : destination;
    c.dstArray = driver_array(p.dstArray);
    c.dstHost = p.dstPtr.ptr;
    c.dstDevice = reinterpret_cast<CUdeviceptr>(p.dstPtr.ptr);

    const bool rows = c.Height > 1 || c.Depth > 1, slices = c.Depth > 1;
    if (slices && p.srcArray == nullptr && c.srcHeight < c.Height) return cudaErrorInvalidPitchValue;
    if (slices && p.dstArray == nullptr && c.dstHeight < c.Height) return cudaErrorInvalidPitchValue;
    if (rows && p.srcArray == nullptr && c.srcPitch < c.srcXInBytes + c.WidthInBytes) return cudaErrorInvalidPitchValue;
    if (rows && p.dstArray == nullptr && c.dstPitch < c.dstXInBytes + c.WidthInBytes) return cudaErrorInvalidPitchValue;
    return cudaSuccess;
}

}  // namespace

bool memory_types(cudaMemcpyKind kind, CUmemorytype& source, CUmemorytype& destination) {
    switch (kind) {
        case cudaMemcpyHostToHost: source = destination = CU_MEMORYTYPE_HOST; return true;
        case cudaMemcpyHostToDevice: source = CU_MEMORYTYPE_HOST, destination = CU_MEMORYTYPE_DEVICE; return true;
        case cudaMemcpyDeviceToHost: source = CU_MEMORYTYPE_DEVICE, destination = CU_MEMORYTYPE_HOST; return true;
        case cudaMemcpyDeviceToDevice: source = destination = CU_MEMORYTYPE_DEVICE; return true;
        case cudaMemcpyDefault: source = destination = CU_MEMORYTYPE_UNIFIED; return true;
    }
    return false;
}

cudaError_t describe_2d(CUDA_MEMCPY2D& c, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                        size_t height, cudaMemcpyKind kind) {
    c = {};
    if (!memory_types(kind, c.srcMemoryType, c.dstMemoryType)) return cudaErrorInvalidMemcpyDirection;
    if (height > 1 && (to_pitch < width || from_pitch < width)) return cudaErrorInvalidPitchValue;
    c.srcHost = from;
    c.srcDevice = reinterpret_cast<CUdeviceptr>(from);
    c.srcPitch = from_pitch;
    c.dstHost = to;
    c.dstDevice = reinterpret_cast<CUdeviceptr>(to);
    c.dstPitch = to_pitch;
    c.WidthInBytes = width;
    c.Height = height;
    return cudaSuccess;
}

cudaError_t describe_3d(const Driver& d, CUDA_MEMCPY3D& c, const cudaMemcpy3DParms& p) {
    CUmemorytype source{}, destination{};
    if (!memory_types(p.kind, source, destination)) return cudaErrorInvalidMemcpyDirection;
    return describe(d, c, p, source, destination);
}

cudaError_t describe_3d_peer(const Driver& d, CUDA_MEMCPY3D_PEER& c, const cudaMemcpy3DPeerParms& p) {
    if (cudaError_t e = describe(d, c, p, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE)) return e;
    if (cudaError_t e = primary_context(d, p.srcDevice, c.srcContext)) return e;
    return primary_context(d, p.dstDevice, c.dstContext);
}

cudaError_t describe_1d(CUDA_MEMCPY3D& c, void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    c = {};
    if (!memory_types(kind, c.srcMemoryType, c.dstMemoryType)) return cudaErrorInvalidMemcpyDirection;
    c.srcHost = from;
    c.srcDevice = reinterpret_cast<CUdeviceptr>(from);
    c.dstHost = to;
    c.dstDevice = reinterpret_cast<CUdeviceptr>(to);
    c.WidthInBytes = size;
    c.Height = c.Depth = 1;
    return cudaSuccess;
}

void describe_runtime(const Driver& d, cudaMemcpy3DParms& p, const CUDA_MEMCPY3D& c) {
    p = {};
    p.srcArray = reinterpret_cast<cudaArray_t>(c.srcArray);
    p.dstArray = reinterpret_cast<cudaArray_t>(c.dstArray);
    const bool source_array = c.srcMemoryType == CU_MEMORYTYPE_ARRAY;
    const bool destination_array = c.dstMemoryType == CU_MEMORYTYPE_ARRAY;
    const size_t source_element = source_array ? element_bytes(d, p.srcArray) : 1;
    const size_t destination_element = destination_array ? element_bytes(d, p.dstArray) : 1;
    const auto pointer = [](CUmemorytype type, const void* host, CUdeviceptr device) {
        if (type == CU_MEMORYTYPE_ARRAY) return static_cast<void*>(nullptr);
        return type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : reinterpret_cast<void*>(device);
    };
    if (source_element != 0) p.srcPos = {c.srcXInBytes / source_element, c.srcY, c.srcZ};
    if (destination_element != 0) p.dstPos = {c.dstXInBytes / destination_element, c.dstY, c.dstZ};
    p.srcPtr = {pointer(c.srcMemoryType, c.srcHost, c.srcDevice), c.srcPitch, c.srcPitch, c.srcHeight};
    p.dstPtr = {pointer(c.dstMemoryType, c.dstHost, c.dstDevice), c.dstPitch, c.dstPitch, c.dstHeight};
    const size_t element = source_array ? source_element : destination_element;
    p.extent = {element != 0 ? c.WidthInBytes / element : 0, c.Height, c.Depth};
    const bool from_host = c.srcMemoryType == CU_MEMORYTYPE_HOST, to_host = c.dstMemoryType == CU_MEMORYTYPE_HOST;
    p.kind = from_host ? (to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                       : (to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice);
    if (c.srcMemoryType == CU_MEMORYTYPE_UNIFIED || c.dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        p.kind = cudaMemcpyDefault;
}

size_t element_bytes(const Driver& d, cudaArray_const_t array) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    if (d.cuArray3DGetDescriptor(&descriptor, driver_array(array)) != CUDA_SUCCESS) return 0;
    return format_bytes(descriptor.Format) * descriptor.NumChannels;
}

}  // namespace hpe::soft::cudart
