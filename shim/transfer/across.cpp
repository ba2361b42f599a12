// SPDX-License-Identifier: MIT
// The kernel of each context.
#include "shim/transfer/across.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/base/room.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/own_kernel.h"

namespace hpe::across {

namespace {

constexpr char kKernel[] =
#include "shim/transfer/copy_kernel.inc"
    ;

struct Kernel {
    std::atomic<CUcontext> context{nullptr};
    Mutex loading;
    OwnKernel own HPE_GUARDED_BY(loading);
    std::atomic<CUfunction> function{nullptr};
};
constinit ByContext<Kernel> kernels;

// The kernel is given the host's addresses of pinned memory.
bool same_addresses() noexcept {
    CUdevice device = 0;
    int same = 0;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           driver.cuDeviceGetAttribute(&same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device) ==
               CUDA_SUCCESS &&
           same != 0;
}

}  // namespace

void prepare(CUcontext context) noexcept {
    Kernel* const kernel = kernels.of(context);
    if (kernel == nullptr || ready(context)) return;
    const Locked lock(kernel->loading);
    if (same_addresses()) kernel->function.store(kernel->own.load(kKernel, "hpe_copy"), std::memory_order_release);
}

bool ready(CUcontext context) noexcept {
    Kernel* const kernel = kernels.known(context);
    return kernel != nullptr && kernel->function.load(std::memory_order_acquire) != nullptr;
}

namespace {

// As the kernel reads it: what it copies, from where both sides begin.
struct Piece {
    std::uint32_t offset, bytes;
};
// What one launch can be told of.
constexpr std::size_t kMostPieces = 480;
struct Pieces {
    std::array<Piece, kMostPieces> all;
};

// Pieces for the kernel: neighbours are one, as long as that is no more than one of its blocks is to copy.
class Launches {
public:
    Launches(CUfunction function, CUdeviceptr to, CUdeviceptr from, CUstream stream, Pieces& pieces) noexcept
        : function_(function), to_(to), from_(from), stream_(stream), pieces_(pieces) {}

    CUresult add(std::size_t offset, std::size_t bytes) noexcept {
        constexpr std::size_t kMost = std::size_t{16} << 10;
        auto result = CUDA_SUCCESS;
        while (bytes != 0 && result == CUDA_SUCCESS) {
            Piece* const last = count_ != 0 ? &pieces_.all[count_ - 1] : nullptr;
            const bool joins = last != nullptr && last->offset + last->bytes == offset && last->bytes < kMost;
            if (!joins && count_ == kMostPieces) result = finish();
            Piece& piece = joins ? *last : pieces_.all[count_++];
            if (!joins) piece = {static_cast<std::uint32_t>(offset), 0};
            const auto part = std::min(bytes, kMost - piece.bytes);
            piece.bytes += static_cast<std::uint32_t>(part);
            offset += part;
            bytes -= part;
        }
        return result;
    }
    CUresult finish() noexcept {
        constexpr unsigned kThreads = 256, kMostBlocks = 512;
        if (count_ == 0) return CUDA_SUCCESS;
        const auto blocks = std::min(count_, kMostBlocks);
        auto count = std::exchange(count_, 0u);
        void* parameters[] = {&to_, &from_, &count, pieces_.all.data()};
        return driver.cuLaunchKernel(function_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr);
    }

private:
    const CUfunction function_;
    CUdeviceptr to_, from_;
    const CUstream stream_;
    unsigned count_ = 0;
    Pieces& pieces_;
};

// Between `device` and other memory, either of which is written. one(offset, bytes) copies what one allocation has.
template <class One>
CUresult copy(CUcontext context, CUdeviceptr device, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Over over,
              CUstream stream, One&& one) noexcept {
    if (!over.by_kernel) return for_allocated(over.region, device, bytes, one);
    Kernel* const kernel = kernels.known(context);
    const CUfunction function = kernel != nullptr ? kernel->function.load(std::memory_order_acquire) : nullptr;
    const Room<Pieces> room;
    if (function == nullptr || room.get() == nullptr) return CUDA_ERROR_NOT_READY;
    Launches launches(function, to, from, stream, *room.get());
    const auto added = for_allocated(over.region, device, bytes,
                                     [&](std::size_t offset, std::size_t part) { return launches.add(offset, part); });
    return added == CUDA_SUCCESS ? launches.finish() : added;
}

CUdeviceptr pinned(const std::byte* memory) noexcept { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

CUresult to_device(CUcontext context, CUdeviceptr to, const std::byte* from, std::size_t bytes, Over over,
                   CUstream stream) noexcept {
    return copy(context, to, to, pinned(from), bytes, over, stream, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyHtoDAsync_v2(to + offset, from + offset, part, stream);
    });
}

CUresult to_host(CUcontext context, std::byte* to, CUdeviceptr from, std::size_t bytes, Over over,
                 CUstream stream) noexcept {
    return copy(context, from, pinned(to), from, bytes, over, stream, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyDtoHAsync_v2(to + offset, from + offset, part, stream);
    });
}

void forget(CUcontext context) noexcept {
    Kernel* const kernel = kernels.known(context);
    if (kernel == nullptr) return;
    const Locked lock(kernel->loading);
    kernel->function.store(nullptr, std::memory_order_release);
    kernel->own.forget();
}

}  // namespace hpe::across
