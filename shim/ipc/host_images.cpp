// SPDX-License-Identifier: MIT
// One stream of our own in each context, which waits for nothing of the program's.
#include "shim/ipc/host_images.h"

#include <algorithm>

#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/copies/own_work.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::ipc {

namespace {

// Large enough for the link's speed (docs/hardware.md), small enough that the receiver's device begins soon.
constexpr std::size_t kPieceOfImage = std::size_t{4} << 20;

struct Filling {
    SpinLock lock;
    CUstream stream HPE_GUARDED_BY(lock) = nullptr;
    bool unable HPE_GUARDED_BY(lock) = false;  // streams of this device write no numbers
};
constinit ByContext<Filling> fillings;

// The context is current.
CUresult enqueue_pieces(const Image& image, CUdeviceptr from, std::size_t bytes, CUstream stream,
                        bool& unable) noexcept {
    CUdeviceptr number = 0;
    auto result = driver.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                               reinterpret_cast<CUdeviceptr>(image.arrived));
    for (std::size_t done = 0; done < bytes && result == CUDA_SUCCESS;) {
        const auto piece = std::min(kPieceOfImage, bytes - done);
        result = driver.cuMemcpyDtoHAsync_v2(image.at + done, from + done, piece, stream);
        if (result != CUDA_SUCCESS) break;
        done += piece;
        // Comes after the bytes for whoever sees it (no flag: with a barrier of the whole system).
        result = driver.cuStreamWriteValue32_v2(stream, number, static_cast<cuuint32_t>(done),
                                                CU_STREAM_WRITE_VALUE_DEFAULT);
        unable = result == CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

}  // namespace

bool start_filling(const Image& image, CUcontext context, CUdeviceptr from, std::size_t bytes) noexcept {
    Filling* const filling = fillings.of(context);
    if (filling == nullptr) return false;
    const Inside inside;
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    if (scope.result() != CUDA_SUCCESS) return false;
    CUstream stream = nullptr;
    {
        const Locked lock(filling->lock);
        if (filling->unable) return false;
        if (make_stream(filling->stream) != CUDA_SUCCESS) return false;
        stream = filling->stream;
    }
    OwnTransfer transfer(OwnTransfer::To::Host, "message to shared memory", from, bytes);
    image.arrived->store(0, std::memory_order_release);
    bool unable = false;
    if (enqueue_pieces(image, from, bytes, stream, unable) == CUDA_SUCCESS) {
        transfer.done();
        return true;
    }
    // Some pieces may be under way.
    if (driver.cuStreamSynchronize(stream) == CUDA_SUCCESS) {
        image.arrived->store(static_cast<std::uint32_t>(bytes), std::memory_order_release);
    }
    const Locked lock(filling->lock);
    filling->unable = filling->unable || unable;
    return false;
}

// A message may be over before the device is done, where its receiver had no room for all of it.
void end_filling(const Image& image, CUcontext context, std::size_t bytes) noexcept {
    if (image.arrived->load(std::memory_order_acquire) == bytes) return;
    Filling* const filling = fillings.known(context);
    if (filling == nullptr) return;
    CUstream stream = nullptr;
    {
        const Locked lock(filling->lock);
        stream = filling->stream;
    }
    const Inside inside;
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    if (stream != nullptr && scope.result() == CUDA_SUCCESS) driver.cuStreamSynchronize(stream);
}

void images_forget(CUcontext context) noexcept {
    Filling* const filling = fillings.known(context);
    if (filling == nullptr) return;
    const Locked lock(filling->lock);
    filling->stream = nullptr;
    filling->unable = false;
}

}  // namespace hpe::ipc
