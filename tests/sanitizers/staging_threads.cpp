// SPDX-License-Identifier: MIT
// Staging from many threads at once over the soft driver, with few blocks to share, so that a sanitizer sees the pool,
// the helpers and the transfers together. libhpe.so itself cannot run under one.
#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"
#include "shim/transfer/copiers.h"
#include "shim/transfer/staging.h"
#include "tests/sanitizers/do.h"

namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t unbounded = ~std::size_t{0};
std::atomic<std::size_t> wrong{0}, staged{0};

Bytes noise(std::size_t n, unsigned seed) {
    Bytes bytes(n);
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i + seed) * 2654435761u >> 15);
    return bytes;
}

// There with or without waiting, and back; with a lane of one's own blocks where the pool has none to spare.
void work(CUcontext context, unsigned thread) {
    DO(cuCtxSetCurrent(context));
    CUstream stream;
    DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    std::array<hpe::staging::BounceBuffer, 2> blocks;
    const std::array<hpe::staging::BounceBuffer*, 2> own{&blocks[0], &blocks[1]};
    constexpr std::size_t own_bytes = 64 << 10;
    for (auto& block : blocks) {
        void* memory = nullptr;
        DO(cuMemHostAlloc(&memory, own_bytes, CU_MEMHOSTALLOC_PORTABLE));
        block.memory = static_cast<std::byte*>(memory);
        DO(hpe::make_event(block.event));
    }
    for (unsigned round = 0; round < 12; ++round) {
        // Every third time in rows, of which the device keeps every other byte to itself.
        const bool in_rows = round % 3 == 0;
        const std::size_t width = 1000 + thread, rows = in_rows ? 1 + round * 200 : 1;
        const std::size_t n = in_rows ? width * rows : 1 + (thread * 977 + round * 131071u) % 3000000;
        const auto extent = in_rows ? hpe::staging::Extent{width, rows, width, 2 * width} : hpe::staging::Extent{n};
        const Bytes from = noise(n, thread * 100 + round);
        Bytes source = from, back(n);
        CUdeviceptr device;
        DO(cuMemAlloc_v2(&device, 2 * n));
        {
            hpe::staging::Lane pooled(context, n, unbounded, [] { return true; });
            hpe::staging::Lane mine(context, own, own_bytes, n);
            auto& lane = pooled.size() != 0 ? pooled : mine;
            staged += pooled.size() != 0;
            const bool wait = round % 2 == 0;
            DO(hpe::staging::copy_to_device(lane, device, source.data(), extent, stream, wait));
            std::memset(source.data(), 0, n);
        }
        hpe::staging::Lane lane(context, n, unbounded, [] { return false; });
        if (lane.size() != 0) {
            DO(hpe::staging::copy_to_host(lane, back.data(), device, extent, stream));
        } else {
            CUDA_MEMCPY2D copy{};
            copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = device;
            copy.srcPitch = in_rows ? extent.device_pitch : n;
            copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = back.data();
            copy.dstPitch = copy.WidthInBytes = extent.width, copy.Height = extent.rows;
            DO(cuMemcpy2DAsync_v2(&copy, stream));
            DO(cuStreamSynchronize(stream));
        }
        wrong += back != from;
        DO(cuMemFree_v2(device));
    }
    for (auto& block : blocks) DO(cuMemFreeHost(block.memory));
    DO(cuStreamDestroy(stream));
}

}  // namespace

int main() {
#define HPE_TAKE(symbol) hpe::driver.symbol = &::symbol;
    HPE_TAKE(cuCtxGetCurrent)
    HPE_TAKE(cuCtxGetDevice)
    HPE_TAKE(cuDeviceGetPCIBusId)
    HPE_TAKE(cuStreamCreateWithPriority)
    HPE_TAKE(cuStreamSynchronize)
    HPE_TAKE(cuMemHostAlloc)
    HPE_TAKE(cuEventCreate)
    HPE_TAKE(cuEventRecord)
    HPE_TAKE(cuEventSynchronize)
    HPE_TAKE(cuEventQuery)
    HPE_TAKE(cuMemcpyHtoDAsync_v2)
    HPE_TAKE(cuMemcpyDtoHAsync_v2)
    HPE_TAKE(cuMemcpy2DAsync_v2)
    hpe::pinned::configure(std::size_t{4} << 20);
    hpe::staging::configure(3, std::size_t{256} << 10);
    DO(cuInit(0));
    std::vector<CUcontext> contexts(2);
    for (int i = 0; i < 2; ++i) {
        CUdevice device;
        DO(cuDeviceGet(&device, i));
        DO(cuDevicePrimaryCtxRetain(&contexts[static_cast<std::size_t>(i)], device));
    }
    for (int life = 0; life < 2; ++life) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 8; ++t)
            threads.emplace_back(work, contexts[t % 2], t + static_cast<unsigned>(life) * 8);
        for (auto& thread : threads) thread.join();
        // The contexts end, and their blocks with them.
        for (int i = 0; i < 2; ++i) {
            DO(cuDevicePrimaryCtxReset_v2(i));
            hpe::staging::forget(contexts[static_cast<std::size_t>(i)]);
            DO(cuDevicePrimaryCtxRetain(&contexts[static_cast<std::size_t>(i)], i));
        }
    }
    std::printf("%zu wrong, %s\n", wrong.load(), staged.load() > 100 ? "most were staged" : "few were staged");
    return wrong.load() == 0 && staged.load() > 100 ? 0 : 1;
}
