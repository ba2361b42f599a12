// SPDX-License-Identifier: MIT
// Copies in up to three dimensions, between any memory and CUDA arrays (CUDA Driver API, "Memory Management", cuMemcpy
// and its relatives), in streams and graphs.
//
// Sizes in bytes. Threads: any, there is no state; descriptors stay the caller's. Errors: exceptions of type Error
// (call.h); what run() answers breaks the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "toolchain/softgpu/driver/base/abi.h"
#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Context;

// Up to three dimensions of memory with linear layout; addresses are unified ones, pageable host memory included.
struct CopyEnd {
    std::uint64_t address = 0;
    std::size_t pitch = 0, slice = 0;  // bytes from row to row, from plane to plane
};
struct CopyOp {
    CopyEnd to, from;
    std::size_t width = 0, height = 1, depth = 1;  // width in bytes
    std::shared_ptr<std::byte[]> staged;           // owns the source when pageable memory was staged
    bool between_peers = false;                    // the stream's device need not reach both sides

    std::uint64_t bytes() const { return static_cast<std::uint64_t>(width) * height * depth; }
    // From the first to behind the last byte of one side.
    std::uint64_t span(const CopyEnd& end) const {
        return bytes() == 0 ? 0 : (depth - 1) * end.slice + (height - 1) * end.pitch + width;
    }
};
CUresult run(Context& context, const CopyOp& operation);

// Checks a descriptor and turns it into an operation. Throws INVALID_VALUE; INVALID_HANDLE for what is no array.
CopyOp copy_of(const CUDA_MEMCPY3D& descriptor);

// Checks the ranges of both sides. Throws INVALID_VALUE.
void check_ranges(const CopyOp& operation);

}  // namespace hpe::soft
