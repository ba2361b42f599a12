// SPDX-License-Identifier: MIT
// Host memory of this process in which the bytes of a message lie, or into which the device is bringing them: in a file
// (memfd) that the receiver maps and pins too, so that its device takes them from there, piece by piece. No processor
// copies, and none of this process has to act once the device was given its work: after each piece the device itself
// writes how many bytes are there.
//
// Source: sglang, nccl and UCX do the same where CUDA IPC is refused (UCX: RNDV_PIPELINE_SHM).
//
// Bytes; the memory is the owner's (mpi/host_memory.h). Threads: any, outside the fault path and the gate. Errors:
// false; the message is then to be sent in another way, with the memory as if nothing had happened.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe::ipc {

// Of the file, as others find it in /proc.
constexpr char kImageName[] = "libhpe-image";

struct Image {
    std::byte* at = nullptr;  // of the message's first byte; nullptr: none
    int file = -1;
    std::uint64_t inode = 0;
    std::size_t file_bytes = 0;
    std::size_t offset = 0;  // in the file, of the message's first byte
    // Of the message's bytes, from the first on, so many are there.
    std::atomic<std::uint32_t>* arrived = nullptr;
};

// Has the device bring the bytes. They are on the device, and no earlier work changes them; image and number are
// pinned.
bool start_filling(const Image& image, CUcontext context, CUdeviceptr from, std::size_t bytes) noexcept;
// Waits until the device no longer writes there. Afterwards `arrived` is `bytes`, unless the device failed.
void end_filling(const Image& image, CUcontext context, std::size_t bytes) noexcept;

// The context has ended.
void images_forget(CUcontext context) noexcept;

}  // namespace hpe::ipc
