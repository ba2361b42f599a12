// SPDX-License-Identifier: MIT
// Devices: how many, what they are, which is current, and what may be set on one.
#include "api.h"

using namespace hpe::soft::cudart;

namespace {

CUdevice_attribute attribute(cudaDeviceAttr a) { return static_cast<CUdevice_attribute>(a); }

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    return with_driver([&](const Driver& d) {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult r = d.cuDeviceGetCount(count);
        return r == CUDA_SUCCESS && *count == 0 ? CUDA_ERROR_NO_DEVICE : r;
    });
}

cudaError_t cudaSetDevice(int device) {
    return with_driver([&](const Driver& d) { return set_device(d, device); });
}

cudaError_t cudaGetDevice(int* device) {
    return with_driver(
        [&](const Driver& d) { return device == nullptr ? cudaErrorInvalidValue : current_device(d, *device); });
}

cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
            if (CUresult r = d.cuDevicePrimaryCtxSetFlags(handle, device_flags)) return as_error(r);
        }
        CUcontext context = nullptr;
        return primary_context(d, device, context);
    });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    return with_driver([&](const Driver& d) {
        int device = 0;
        CUdevice handle{};
        if (cudaError_t e = current_device(d, device)) return e;
        if (cudaError_t e = device_handle(d, device, handle)) return e;
        // All mapped memory is in one address space; the flag that once asked for it is no flag of a context.
        return as_error(d.cuDevicePrimaryCtxSetFlags(handle, flags & ~static_cast<unsigned>(cudaDeviceMapHost)));
    });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    return with_driver([&](const Driver& d) {
        int device = 0, active = 0;
        CUdevice handle{};
        if (flags == nullptr) return cudaErrorInvalidValue;
        if (cudaError_t e = current_device(d, device)) return e;
        if (cudaError_t e = device_handle(d, device, handle)) return e;
        if (CUresult r = d.cuDevicePrimaryCtxGetState(handle, flags, &active)) return as_error(r);
        *flags |= cudaDeviceMapHost;
        return cudaSuccess;
    });
}

cudaError_t cudaSetValidDevices(int* devices, int count) {
    return with_driver([&](const Driver& d) {
        if (count < 0 || (count > 0 && devices == nullptr)) return cudaErrorInvalidValue;
        for (int i = 0; i < count; ++i) {
            CUdevice handle{};
            if (cudaError_t e = device_handle(d, devices[i], handle)) return e;
        }
        // The list says where a thread without cudaSetDevice goes; its order is only a preference.
        return count > 0 && devices[0] != 0 ? as_error(not_supported("cudaSetValidDevices")) : cudaSuccess;
    });
}

cudaError_t cudaDeviceSynchronize() {
    return with_context([](const Driver& d) { return d.cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset() {
    return with_driver([](const Driver& d) { return reset_device(d); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        return value == nullptr ? CUDA_ERROR_INVALID_VALUE : d.cuDeviceGetAttribute(value, attribute(which), handle);
    });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int from, int to) {
    return with_device(from, [&](const Driver& d, CUdevice handle) {
        CUdevice other{};
        if (cudaError_t e = device_handle(d, to, other)) return e;
        return as_error(d.cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(which), handle, other));
    });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return with_device(device, [&](const Driver& d, CUdevice handle) {
        CUdevice other{};
        if (can == nullptr) return cudaErrorInvalidValue;
        if (cudaError_t e = device_handle(d, peer, other)) return e;
        return as_error(d.cuDeviceCanAccessPeer(can, handle, other));
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return with_context([&](const Driver& d) {
        CUcontext context = nullptr;
        if (cudaError_t e = primary_context(d, peer, context)) return e;
        return as_error(d.cuCtxEnablePeerAccess(context, flags));
    });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    return with_context([&](const Driver& d) {
        CUcontext context = nullptr;
        if (cudaError_t e = primary_context(d, peer, context)) return e;
        return as_error(d.cuCtxDisablePeerAccess(context));
    });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
    return with_driver([&](const Driver& d) { return d.cuDeviceGetByPCIBusId(device, id); });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    return with_device(device,
                       [&](const Driver& d, CUdevice handle) { return d.cuDeviceGetPCIBusId(id, length, handle); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
    return with_context([&](const Driver& d) { return d.cuCtxSetLimit(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    return with_context([&](const Driver& d) { return d.cuCtxGetLimit(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
    return with_context(
        [&](const Driver& d) { return d.cuCtxGetCacheConfig(reinterpret_cast<CUfunc_cache*>(config)); });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
    return with_context([&](const Driver& d) { return d.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(config)); });
}

// The width of shared-memory banks can be set on no device that CUDA 13 supports.
cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
    return with_context([&](const Driver&) {
        if (config == nullptr) return cudaErrorInvalidValue;
        *config = cudaSharedMemBankSizeFourByte;
        return cudaSuccess;
    });
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
    return with_context([](const Driver&) { return cudaSuccess; });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return with_context([&](const Driver& d) { return d.cuCtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t cudaCtxResetPersistingL2Cache() {
    return with_context([](const Driver& d) { return d.cuCtxResetPersistingL2Cache(); });
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget target,
                                               cudaFlushGPUDirectRDMAWritesScope scope) {
    return with_context([&](const Driver& d) {
        return d.cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(target),
                                            static_cast<CUflushGPUDirectRDMAWritesScope>(scope));
    });
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
    return with_driver([&](const Driver& d) {
        if (device == nullptr || wanted == nullptr) return cudaErrorInvalidValue;
        // The first that has at least the compute capability and the memory asked for, otherwise the first of all.
        int count = 0;
        if (CUresult r = d.cuDeviceGetCount(&count)) return as_error(r);
        *device = 0;
        for (int i = 0; i < count; ++i) {
            int major = 0, minor = 0;
            size_t memory = 0;
            d.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, i);
            d.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, i);
            d.cuDeviceTotalMem(&memory, i);
            const bool newer = major > wanted->major || (major == wanted->major && minor >= wanted->minor);
            if (newer && memory >= wanted->totalGlobalMem) {
                *device = i;
                break;
            }
        }
        return cudaSuccess;
    });
}
}

namespace {

cudaError_t entry_point(Flavour flavour, const char* symbol, void** function, unsigned version,
                        unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
    return with_driver([&](const Driver& d) {
        if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (flags == cudaEnableDefault && flavour == Flavour::PerThread) flags = cudaEnablePerThreadDefaultStream;
        CUdriverProcAddressQueryResult found{};
        const CUresult r = d.cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
        if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
        // Without a place for the status, a missing function is told by the null pointer alone.
        if (r == CUDA_ERROR_NOT_FOUND) {
            *function = nullptr;
            return CUDA_SUCCESS;
        }
        return r;
    });
}

}  // namespace

HPE_BOTH_FLAVOURS(cudaGetDriverEntryPointByVersion, ptsz,
                  (const char* symbol, void** function, unsigned version, unsigned long long flags,
                   cudaDriverEntryPointQueryResult* status),
                  (symbol, function, version, flags, status)) {
    return entry_point(flavour, symbol, function, version, flags, status);
}

HPE_BOTH_FLAVOURS(cudaGetDriverEntryPoint, ptsz,
                  (const char* symbol, void** function, unsigned long long flags,
                   cudaDriverEntryPointQueryResult* status),
                  (symbol, function, flags, status)) {
    return entry_point(flavour, symbol, function, CUDART_VERSION, flags, status);
}
