// SPDX-License-Identifier: MIT
// Copies between host and device memory: linear, 2D, 3D, between devices, and to and from variables.
#include "api.h"
#include "code.h"
#include "copy_params.h"

using namespace hpe::soft::cudart;

namespace {

cudaError_t copy(const Driver& d, void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    CUmemorytype source{}, destination{};
    if (size == 0) return cudaSuccess;
    if (!memory_types(kind, source, destination)) return cudaErrorInvalidMemcpyDirection;
    switch (kind) {
        case cudaMemcpyHostToDevice: return as_error(d.cuMemcpyHtoD(device_pointer(to), from, size));
        case cudaMemcpyDeviceToHost: return as_error(d.cuMemcpyDtoH(to, device_pointer(from), size));
        case cudaMemcpyDeviceToDevice: return as_error(d.cuMemcpyDtoD(device_pointer(to), device_pointer(from), size));
        default: return as_error(d.cuMemcpy(device_pointer(to), device_pointer(from), size));
    }
}

cudaError_t copy_async(const Driver& d, void* to, const void* from, size_t size, cudaMemcpyKind kind,
                       cudaStream_t stream) {
    CUmemorytype source{}, destination{};
    if (size == 0) return cudaSuccess;
    if (!memory_types(kind, source, destination)) return cudaErrorInvalidMemcpyDirection;
    switch (kind) {
        case cudaMemcpyHostToDevice: return as_error(d.cuMemcpyHtoDAsync(device_pointer(to), from, size, stream));
        case cudaMemcpyDeviceToHost: return as_error(d.cuMemcpyDtoHAsync(to, device_pointer(from), size, stream));
        case cudaMemcpyDeviceToDevice:
            return as_error(d.cuMemcpyDtoDAsync(device_pointer(to), device_pointer(from), size, stream));
        default: return as_error(d.cuMemcpyAsync(device_pointer(to), device_pointer(from), size, stream));
    }
}

// The part of a variable that a copy names.
cudaError_t part_of_variable(const Driver& d, const void* symbol, size_t offset, size_t size, void*& part) {
    CUdeviceptr address = 0;
    size_t whole = 0;
    if (cudaError_t e = find_variable(d, symbol, address, whole)) return e;
    if (size == 0) offset = 0;  // wherever it would begin
    if (offset > whole || size > whole - offset) return cudaErrorInvalidValue;
    part = reinterpret_cast<void*>(address + offset);
    return cudaSuccess;
}

bool into_variable(cudaMemcpyKind kind) {
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}
bool out_of_variable(cudaMemcpyKind kind) {
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

bool nothing(cudaExtent e) { return e.width == 0 || e.height == 0 || e.depth == 0; }

}  // namespace

HPE_BOTH_FLAVOURS(cudaMemcpy, ptds, (void* to, const void* from, size_t size, cudaMemcpyKind kind),
                  (to, from, size, kind)) {
    return with_context(flavour, [&](const Driver& d) { return copy(d, to, from, size, kind); });
}

HPE_BOTH_FLAVOURS(cudaMemcpyAsync, ptsz,
                  (void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream),
                  (to, from, size, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) { return copy_async(d, to, from, size, kind, stream); });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2D, ptds,
                  (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                   cudaMemcpyKind kind),
                  (to, to_pitch, from, from_pitch, width, height, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        CUDA_MEMCPY2D c;
        if (width == 0 || height == 0) return cudaSuccess;
        if (cudaError_t e = describe_2d(c, to, to_pitch, from, from_pitch, width, height, kind)) return e;
        return as_error(d.cuMemcpy2DUnaligned(&c));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy2DAsync, ptsz,
                  (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                   cudaMemcpyKind kind, cudaStream_t stream),
                  (to, to_pitch, from, from_pitch, width, height, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        CUDA_MEMCPY2D c;
        if (width == 0 || height == 0) return cudaSuccess;
        if (cudaError_t e = describe_2d(c, to, to_pitch, from, from_pitch, width, height, kind)) return e;
        return as_error(d.cuMemcpy2DAsync(&c, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy3D, ptds, (const cudaMemcpy3DParms* p), (p)) {
    return with_context(flavour, [&](const Driver& d) {
        if (p == nullptr) return cudaErrorInvalidValue;
        if (nothing(p->extent)) return cudaSuccess;
        CUDA_MEMCPY3D c;
        if (cudaError_t e = describe_3d(d, c, *p)) return e;
        return as_error(d.cuMemcpy3D(&c));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy3DAsync, ptsz, (const cudaMemcpy3DParms* p, cudaStream_t stream), (p, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (p == nullptr) return cudaErrorInvalidValue;
        if (nothing(p->extent)) return cudaSuccess;
        CUDA_MEMCPY3D c;
        if (cudaError_t e = describe_3d(d, c, *p)) return e;
        return as_error(d.cuMemcpy3DAsync(&c, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy3DPeer, ptds, (const cudaMemcpy3DPeerParms* p), (p)) {
    return with_context(flavour, [&](const Driver& d) {
        if (p == nullptr) return cudaErrorInvalidValue;
        if (nothing(p->extent)) return cudaSuccess;
        CUDA_MEMCPY3D_PEER c;
        if (cudaError_t e = describe_3d_peer(d, c, *p)) return e;
        return as_error(d.cuMemcpy3DPeer(&c));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy3DPeerAsync, ptsz, (const cudaMemcpy3DPeerParms* p, cudaStream_t stream), (p, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (p == nullptr) return cudaErrorInvalidValue;
        if (nothing(p->extent)) return cudaSuccess;
        CUDA_MEMCPY3D_PEER c;
        if (cudaError_t e = describe_3d_peer(d, c, *p)) return e;
        return as_error(d.cuMemcpy3DPeerAsync(&c, stream));
    });
}

// These two have one flavour: the first takes no stream at all, the second is exported once by NVIDIA's library too.
extern "C" cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t size) {
    return with_context([&](const Driver& d) {
        CUcontext to_context = nullptr, from_context = nullptr;
        if (cudaError_t e = primary_context(d, to_device, to_context)) return e;
        if (cudaError_t e = primary_context(d, from_device, from_context)) return e;
        if (size == 0) return cudaSuccess;
        return as_error(d.cuMemcpyPeer(device_pointer(to), to_context, device_pointer(from), from_context, size));
    });
}

extern "C" cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t size,
                                           cudaStream_t stream) {
    return with_context([&](const Driver& d) {
        CUcontext to_context = nullptr, from_context = nullptr;
        if (cudaError_t e = primary_context(d, to_device, to_context)) return e;
        if (cudaError_t e = primary_context(d, from_device, from_context)) return e;
        if (size == 0) return cudaSuccess;
        return as_error(
            d.cuMemcpyPeerAsync(device_pointer(to), to_context, device_pointer(from), from_context, size, stream));
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyToSymbol, ptds,
                  (const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind),
                  (symbol, from, size, offset, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        if (!into_variable(kind)) return cudaErrorInvalidMemcpyDirection;
        void* part = nullptr;
        if (cudaError_t e = part_of_variable(d, symbol, offset, size, part)) return e;
        return copy(d, part, from, size, kind);
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyToSymbolAsync, ptsz,
                  (const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind,
                   cudaStream_t stream),
                  (symbol, from, size, offset, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (!into_variable(kind)) return cudaErrorInvalidMemcpyDirection;
        void* part = nullptr;
        if (cudaError_t e = part_of_variable(d, symbol, offset, size, part)) return e;
        return copy_async(d, part, from, size, kind, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyFromSymbol, ptds,
                  (void* to, const void* symbol, size_t size, size_t offset, cudaMemcpyKind kind),
                  (to, symbol, size, offset, kind)) {
    return with_context(flavour, [&](const Driver& d) {
        if (!out_of_variable(kind)) return cudaErrorInvalidMemcpyDirection;
        void* part = nullptr;
        if (cudaError_t e = part_of_variable(d, symbol, offset, size, part)) return e;
        return copy(d, to, part, size, kind);
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyFromSymbolAsync, ptsz,
                  (void* to, const void* symbol, size_t size, size_t offset, cudaMemcpyKind kind, cudaStream_t stream),
                  (to, symbol, size, offset, kind, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        if (!out_of_variable(kind)) return cudaErrorInvalidMemcpyDirection;
        void* part = nullptr;
        if (cudaError_t e = part_of_variable(d, symbol, offset, size, part)) return e;
        return copy_async(d, to, part, size, kind, stream);
    });
}

extern "C" cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
    return with_context([&](const Driver& d) {
        size_t size = 0;
        return address == nullptr ? cudaErrorInvalidValue : find_variable(d, symbol, *device_pointer(address), size);
    });
}

extern "C" cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
    return with_context([&](const Driver& d) {
        CUdeviceptr address = 0;
        return size == nullptr ? cudaErrorInvalidValue : find_variable(d, symbol, address, *size);
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpyBatchAsync, ptsz,
                  (void* const* to, const void* const* from, const size_t* sizes, size_t count,
                   cudaMemcpyAttributes* attributes, size_t* indices, size_t attribute_count, cudaStream_t stream),
                  (to, from, sizes, count, attributes, indices, attribute_count, stream)) {
    return with_context(flavour, [&](const Driver& d) {
        // The driver reads all of these and writes none; cudaMemcpyAttributes is its own struct under another name.
        return d.cuMemcpyBatchAsync(
            reinterpret_cast<CUdeviceptr*>(const_cast<void**>(to)),
            reinterpret_cast<CUdeviceptr*>(const_cast<void**>(from)), const_cast<size_t*>(sizes), count,
            reinterpret_cast<CUmemcpyAttributes*>(attributes), indices, attribute_count, stream);
    });
}

HPE_BOTH_FLAVOURS(cudaMemcpy3DBatchAsync, ptsz,
                  (size_t count, cudaMemcpy3DBatchOp* list, unsigned long long flags, cudaStream_t stream),
                  (count, list, flags, stream)) {
    static_assert(sizeof(cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
    return with_context(flavour, [&](const Driver& d) {
        return d.cuMemcpy3DBatchAsync(count, reinterpret_cast<CUDA_MEMCPY3D_BATCH_OP*>(list), flags, stream);
    });
}
