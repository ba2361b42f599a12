// SPDX-License-Identifier: MIT
// What programs ask about a device: its name, its place on the bus, its attributes. They are those of a small device
// of its compute capability; what the soft device cannot do is said here too, so that programs choose another way.
#include <cstdio>
#include <cstring>

#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

constexpr int warp_size = 32;
constexpr int clock_khz = 1'000'000;  // clock64() counts nanoseconds
constexpr int constant_memory = 64 << 10;
constexpr int alignment = 512;

int bus_of(const Device& device) { return device.ordinal + 1; }

int to_int(unsigned value) { return static_cast<int>(value); }

// Limits of images, an H200's. Surfaces and mipmaps cannot be used; programs that print their limits see real ones.
bool image_limit(CUdevice_attribute attribute, int& value) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: value = 131072; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: value = 65536; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: value = 65000; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: value = 16384; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: value = 8192; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: value = 32768; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: value = 2048; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS:
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: value = 2046; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: value = 268435456; return true;
        case CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: value = 2097120; return true;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: value = alignment; return true;
        case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: value = 32; return true;
        default: return false;
    }
}

// Limits and sizes.
bool number_of(CUdevice_attribute attribute, const Device& device, int& value) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: value = to_int(max_threads_per_block); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: value = to_int(max_block_dim[0]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: value = to_int(max_block_dim[1]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: value = to_int(max_block_dim[2]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: value = to_int(max_grid_dim[0]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: value = to_int(max_grid_dim[1]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: value = to_int(max_grid_dim[2]); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: value = to_int(shared_per_block); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            value = to_int(capability().shared_per_block_optin);
            return true;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
            value = to_int(capability().shared_per_multiprocessor);
            return true;
        case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
            value = to_int(capability().shared_per_multiprocessor - capability().shared_per_block_optin);
            return true;
        case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: value = constant_memory; return true;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: value = warp_size; return true;
        case CU_DEVICE_ATTRIBUTE_MAX_PITCH: value = 0x7fffffff; return true;
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
        case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: value = to_int(registers_per_block); return true;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: value = clock_khz; return true;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: value = 128; return true;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: value = 4 << 20; return true;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: value = to_int(multiprocessors); return true;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
            value = to_int(capability().threads_per_multiprocessor);
            return true;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
            value = to_int(capability().blocks_per_multiprocessor);
            return true;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: value = CU_COMPUTEMODE_DEFAULT; return true;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: value = bus_of(device); return true;
        case CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: value = device.ordinal; return true;
        case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: value = 2; return true;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: value = capability().number / 10; return true;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: value = capability().number % 10; return true;
        case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: value = 2; return true;
        case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: value = 1; return true;
        case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
            value = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            return true;
        case CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: value = CU_DEVICE_NUMA_CONFIG_NONE; return true;
        case CU_DEVICE_ATTRIBUTE_NUMA_ID:
        case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: value = -1; return true;
        default: return false;
    }
}

bool can(CUdevice_attribute attribute) {
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: return true;  // all memory is the host's
        default: return false;
    }
}

CUresult uuid(CUuuid* out, CUdevice dev) {
    require(out != nullptr);
    static_assert(sizeof *out == 16);
    const Device& device = device_at(dev);
    std::memcpy(out->bytes, "hpe soft device", 15);
    out->bytes[15] = static_cast<char>(device.ordinal);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuDeviceGet(CUdevice* device, int ordinal) {
    require(device != nullptr);
    *device = device_at(ordinal).ordinal;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetCount(int* count) {
    require(count != nullptr);
    *count = static_cast<int>(driver().devices.size());
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetName(char* name, int len, CUdevice dev) {
    require(name != nullptr && len > 0);
    device_at(dev);
    std::snprintf(name, static_cast<std::size_t>(len), "libhpe soft device");
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid(CUuuid* out, CUdevice dev) { return uuid(out, dev); }
CUresult api::cuDeviceGetUuid_v2(CUuuid* out, CUdevice dev) { return uuid(out, dev); }

// Adapters have such identifiers on Windows only.
CUresult api::cuDeviceGetLuid(char*, unsigned*, CUdevice dev) {
    device_at(dev);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult api::cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
    require(bytes != nullptr);
    *bytes = device_at(dev).memory.capacity();
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetAttribute(int* pi, CUdevice_attribute attribute, CUdevice dev) {
    require(pi != nullptr);
    const Device& device = device_at(dev);
    require(attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
    int value = 0;
    if (!number_of(attribute, device, value) && !image_limit(attribute, value)) value = can(attribute);
    *pi = value;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
    require(major != nullptr && minor != nullptr);
    device_at(dev);
    *major = capability().number / 10;
    *minor = capability().number % 10;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
    require(prop != nullptr);
    device_at(dev);
    *prop = {};
    prop->maxThreadsPerBlock = to_int(max_threads_per_block);
    for (int i = 0; i < 3; ++i) {
        prop->maxThreadsDim[i] = to_int(max_block_dim[i]);
        prop->maxGridSize[i] = to_int(max_grid_dim[i]);
    }
    prop->sharedMemPerBlock = to_int(shared_per_block);
    prop->totalConstantMemory = constant_memory;
    prop->SIMDWidth = warp_size;
    prop->memPitch = 0x7fffffff;
    prop->regsPerBlock = to_int(registers_per_block);
    prop->clockRate = clock_khz;
    prop->textureAlign = alignment;
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
    require(pciBusId != nullptr);
    const Device& device = device_at(dev);
    char text[16];
    const int length =
        std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", 0u, static_cast<unsigned>(bus_of(device)), 0u);
    require(len > length);
    std::memcpy(pciBusId, text, static_cast<std::size_t>(length) + 1);
    return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
    require(dev != nullptr && pciBusId != nullptr);
    // domain:bus:device.function, with domain or function left out.
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    int end = 0;
    const auto whole = [&] { return end > 0 && pciBusId[end] == '\0'; };
    const auto read = [&](int fields, int wanted) { return fields == wanted && whole(); };
    const bool understood =
        read(std::sscanf(pciBusId, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end), 4) ||
        (end = 0, function = 0, read(std::sscanf(pciBusId, "%x:%x:%x%n", &domain, &bus, &slot, &end), 3)) ||
        (end = 0, domain = 0, read(std::sscanf(pciBusId, "%x:%x.%x%n", &bus, &slot, &function, &end), 3));
    require(understood);
    for (const auto& device : driver().devices) {
        if (domain != 0 || static_cast<unsigned>(bus_of(*device)) != bus || slot != 0 || function != 0) continue;
        *dev = device->ordinal;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult api::cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
    require(pi != nullptr && type >= 0 && type < CU_EXEC_AFFINITY_TYPE_MAX);
    device_at(dev);
    *pi = 0;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
