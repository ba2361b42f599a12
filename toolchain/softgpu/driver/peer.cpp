// SPDX-License-Identifier: MIT
// Access of one device to another's memory. HPE_SOFT_PEER=0 makes devices that cannot, 2 some on a bus without atomics.
#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

CUresult api::cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
    require(can != nullptr);
    *can = &device_at(dev) != &device_at(peer) && driver().options.peer;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                      CUdevice destination) {
    require(value != nullptr);
    require(&device_at(source) != &device_at(destination), CUDA_ERROR_INVALID_DEVICE);
    switch (attribute) {
        case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = driver().options.peer; return CUDA_SUCCESS;
        case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
            *value = driver().options.peer_atomics;
            return CUDA_SUCCESS;
        case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuCtxEnablePeerAccess(CUcontext peerContext, unsigned flags) {
    require(flags == 0);
    Context& context = current();
    Context& peer = context_of(peerContext);
    require(peer.alive(), CUDA_ERROR_INVALID_CONTEXT);
    require(driver().options.peer && &peer.device() != &context.device(), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    context.enable_peer(peer);
    return CUDA_SUCCESS;
}

CUresult api::cuCtxDisablePeerAccess(CUcontext peerContext) {
    Context& context = current();
    Context& peer = context_of(peerContext);
    // Kernels in flight may still use what they were allowed to when they were launched.
    synchronize(context);
    context.disable_peer(peer);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
