// SPDX-License-Identifier: MIT
// What the copy functions share with graphs.
// Sizes in bytes. Threads: any, there is no state; descriptors stay the caller's.
#pragma once

#include "toolchain/softgpu/driver/abi.h"
#include "toolchain/softgpu/driver/operation.h"

namespace hpe::soft {

// Checks a descriptor and turns it into an operation. Throws INVALID_VALUE; INVALID_HANDLE for what is no array.
CopyOp copy_of(const CUDA_MEMCPY3D& descriptor);
// Bytes copied between devices so far: directly, and through the host, as it must be without peer access both ways.
struct PeerBytes {
    std::uint64_t direct, through_host;
};
PeerBytes peer_bytes() noexcept;

// Checks the ranges of both sides. Throws INVALID_VALUE.
void check_ranges(const CopyOp& operation);

}  // namespace hpe::soft
