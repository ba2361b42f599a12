// SPDX-License-Identifier: MIT
// Memory set to a value of 1, 2 or 4 bytes, in one or two dimensions.
#include "toolchain/softgpu/driver/copy/memset.h"

#include <cstring>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/operation.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {
namespace {

// Fills whole elements; `bytes` is a multiple of the element.
void fill(std::byte* out, std::uint64_t bytes, std::uint32_t value, unsigned element) {
    bool same = true;  // all bytes of the value
    for (unsigned i = 1; i < element; ++i) same &= ((value >> (8 * i)) & 0xff) == (value & 0xff);
    if (same) {
        std::memset(out, static_cast<int>(value & 0xff), bytes);
        return;
    }
    const std::uint32_t pattern = element == 2 ? (value & 0xffff) * 0x10001u : value;
    std::uint64_t at = 0;
    for (; at + 4 <= bytes; at += 4) std::memcpy(out + at, &pattern, 4);
    std::memcpy(out + at, &pattern, bytes - at);
}

bool set_row(std::uint64_t address, std::uint64_t bytes, const SetOp& op) {
    while (bytes > 0) {
        std::uint64_t run = 0;
        std::byte* out = bytes_at(address, bytes, run, true);
        if (!out) return false;
        fill(out, run, op.value, op.element);
        address += run;
        bytes -= run;
    }
    return true;
}

CUresult set(CUstream handle, SetOp op) {
    const auto stream = stream_of(handle);
    if (op.width == 0 || op.height == 0) return CUDA_SUCCESS;
    require(op.address % op.element == 0);
    require(op.width <= ~std::size_t{0} / 4 / op.element);
    const std::uint64_t row = op.width * op.element;
    std::uint64_t span = row;
    if (op.height > 1) {
        require(op.pitch >= row && op.pitch % op.element == 0);
        require(op.pitch <= (~std::size_t{0} / 4) / op.height);
        span += (op.height - 1) * op.pitch;
    }
    const Place place = place_of(op.address, span);
    require(place != Place::Pageable);
    if (place == Place::OnDevice && !is_capturing(*stream))
        check_access(op.address, span, true, &stream->context.device());
    submit(*stream, op);
    return CUDA_SUCCESS;
}

// The synchronous forms are asynchronous for device memory; what the host can see is complete when they return.
CUresult set_now(SetOp op) {
    const auto stream = stream_of(nullptr);
    forbid_capturing(*stream);
    forbid_implicit_sync(*stream);
    const CUresult result = set(nullptr, op);
    const AllocationRef allocation = driver().addresses.find(op.address);
    if ((allocation && !allocation->on_device()) || waits_always(stream->context, op.address)) synchronize(*stream);
    return result;
}

SetOp line(CUdeviceptr address, std::uint32_t value, unsigned element, std::size_t count) {
    return {address, 0, value, element, count, 1};
}
SetOp plane(CUdeviceptr address, std::size_t pitch, std::uint32_t value, unsigned element, std::size_t width,
            std::size_t height) {
    return {address, pitch, value, element, width, height};
}

}  // namespace

CUresult run(Context&, const SetOp& op) {
    const std::uint64_t row = op.width * op.element;
    for (std::size_t y = 0; y < op.height; ++y)
        if (!set_row(op.address + y * op.pitch, row, op)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return CUDA_SUCCESS;
}

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) { return set_now(line(to, value, 1, n)); }
CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n) { return set_now(line(to, value, 2, n)); }
CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) { return set_now(line(to, value, 4, n)); }
CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height) {
    return set_now(plane(to, pitch, value, 1, width, height));
}
CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height) {
    return set_now(plane(to, pitch, value, 2, width, height));
}
CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height) {
    return set_now(plane(to, pitch, value, 4, width, height));
}

CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    return set(stream, line(to, value, 1, n));
}
CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
    return set(stream, line(to, value, 2, n));
}
CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream) {
    return set(stream, line(to, value, 4, n));
}
CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                                CUstream stream) {
    return set(stream, plane(to, pitch, value, 1, width, height));
}
CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                                 CUstream stream) {
    return set(stream, plane(to, pitch, value, 2, width, height));
}
CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                                 CUstream stream) {
    return set(stream, plane(to, pitch, value, 4, width, height));
}

}  // namespace hpe::soft
