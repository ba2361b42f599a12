// SPDX-License-Identifier: MIT
// The kernel of each context.
#include "shim/transfer/across.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "shim/base/room.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/own_kernel.h"

namespace hpe::across {

namespace {

constexpr char kKernel[] =
#include "shim/transfer/copy_kernel.inc"
    ;

constinit ByContext<OwnKernel> kernels;

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
    OwnKernel* const kernel = kernels.of(context);
    if (kernel != nullptr && kernel->loaded() == nullptr && same_addresses()) kernel->load(kKernel, "hpe_copy");
}

CUfunction kernel_of(CUcontext context) noexcept {
    const OwnKernel* const kernel = kernels.known(context);
    return kernel != nullptr ? kernel->loaded() : nullptr;
}

namespace {

// No entry stands for more bytes. The few blocks of threads that share an entry copy so many at once, so that no block
// works long after the others.
constexpr std::size_t kMostBytes = std::size_t{16} << 10;
// All offsets of pieces are multiples of this: ranges begin at pages, allocations of a region at units, and what is
// longer than kMostBytes is cut there.
constexpr std::size_t kUnit = Allocations::kUnit;

// Equal pieces at equal distances, as the allocations of a list's nodes are.
struct Series {
    std::size_t offset = 0, bytes = 0;  // of the first piece; no bytes: there is none
    std::size_t pieces = 1;
    std::size_t distance = 0;  // from where one begins to where the next one does

    // Adds a piece that continues the series. False: the piece does not.
    bool goes_on(std::size_t at, std::size_t piece_bytes) noexcept {
        const auto step = pieces == 1 ? at - offset : distance;
        if (piece_bytes != bytes || at != offset + pieces * step || pieces == kMostPieces || step > kMostDistance ||
            (pieces + 1) * bytes > kMostBytes) {
            return false;
        }
        distance = step;
        ++pieces;
        return true;
    }

    // What an Entry has bits for.
    static constexpr std::size_t kMostPieces = kUnit, kMostDistance = ((std::size_t{1} << 18) - 1) * kUnit;
};

// A series as the kernel reads it. The low 8 bits of an offset are 0, so they say how many pieces follow the first one.
// Of the second word the low 14 bits are a piece's bytes less 1, and the high 18 the distance in units.
struct Entry {
    std::uint32_t offset_and_more = 0, bytes_and_distance = 0;

    explicit Entry(const Series& of) noexcept
        : offset_and_more(static_cast<std::uint32_t>(of.offset | (of.pieces - 1))),
          bytes_and_distance(static_cast<std::uint32_t>((of.bytes - 1) | ((of.distance / kUnit) << 14))) {}
    Entry() = default;
};
static_assert(kUnit == 256 && kMostBytes == 1 << 14);
// What one launch can be told of.
constexpr std::size_t kMostEntries = 480;
struct Entries {
    std::array<Entry, kMostEntries> all;
};
static_assert(sizeof(Entries) == 3840);  // as the kernel's parameter

// Tells the kernel of allocations, which are added in the order of their offsets. Neighbours are one piece, and equal
// pieces at equal distances one entry.
class Launches {
public:
    Launches(CUfunction function, CUdeviceptr to, CUdeviceptr from, CUstream stream, Entries& entries) noexcept
        : function_(function), to_(to), from_(from), stream_(stream), entries_(entries) {}

    CUresult add(std::size_t offset, std::size_t bytes) noexcept {
        auto result = CUDA_SUCCESS;
        while (bytes != 0 && result == CUDA_SUCCESS) {
            if (offset_ + bytes_ != offset || bytes_ == kMostBytes) {
                result = end_piece();
                offset_ = offset;
            }
            const auto part = std::min(bytes, kMostBytes - bytes_);
            bytes_ += part;
            offset += part;
            bytes -= part;
        }
        return result;
    }
    CUresult finish() noexcept {
        const auto ended = end_piece();
        return ended == CUDA_SUCCESS ? launch() : ended;
    }

private:
    CUresult end_piece() noexcept {
        const auto bytes = std::exchange(bytes_, 0);
        if (bytes == 0) return CUDA_SUCCESS;
        auto result = CUDA_SUCCESS;
        if (!last_.goes_on(offset_, bytes)) {
            if (count_ == kMostEntries) result = launch();
            last_ = {.offset = offset_, .bytes = bytes};
            ++count_;
        }
        entries_.all[count_ - 1] = Entry(last_);
        return result;
    }
    // With a thread for each word that an entry can have.
    CUresult launch() noexcept {
        constexpr unsigned kThreads = 256, kBlocksEach = kMostBytes / 16 / kThreads;
        if (count_ == 0) return CUDA_SUCCESS;
        const auto count = std::exchange(count_, 0u);
        last_ = {};
        void* parameters[] = {&to_, &from_, entries_.all.data()};
        return driver.cuLaunchKernel(function_, count, kBlocksEach, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr);
    }

    const CUfunction function_;
    CUdeviceptr to_, from_;
    const CUstream stream_;
    std::size_t offset_ = 0, bytes_ = 0;  // the piece that may still grow
    Series last_;                         // the last entry's
    unsigned count_ = 0;
    Entries& entries_;
};

// Between `device` and other memory, either of which is written. one(offset, bytes) copies what one allocation has.
template <class One>
CUresult copy(CUdeviceptr device, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Over over, CUstream stream,
              One&& one) noexcept {
    if (over.kernel == nullptr) return for_allocated(over.region, device, bytes, one);
    const Room<Entries> room;
    if (room.get() == nullptr) return CUDA_ERROR_NOT_READY;
    Launches launches(over.kernel, to, from, stream, *room.get());
    const auto added = for_allocated(over.region, device, bytes,
                                     [&](std::size_t offset, std::size_t part) { return launches.add(offset, part); });
    return added == CUDA_SUCCESS ? launches.finish() : added;
}

CUdeviceptr pinned(const std::byte* memory) noexcept { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

CUresult to_device(CUdeviceptr to, const std::byte* from, std::size_t bytes, Over over, CUstream stream) noexcept {
    return copy(to, to, pinned(from), bytes, over, stream, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyHtoDAsync_v2(to + offset, from + offset, part, stream);
    });
}

CUresult to_host(std::byte* to, CUdeviceptr from, std::size_t bytes, Over over, CUstream stream) noexcept {
    return copy(from, pinned(to), from, bytes, over, stream, [&](std::size_t offset, std::size_t part) {
        return driver.cuMemcpyDtoHAsync_v2(to + offset, from + offset, part, stream);
    });
}

void forget(CUcontext context) noexcept {
    if (OwnKernel* const kernel = kernels.known(context)) kernel->forget();
}

}  // namespace hpe::across
