// SPDX-License-Identifier: MIT
// Copies: the rules of who waits for what, and the bytes themselves.
//
// Pageable memory is only ever touched by the thread that called, outside every lock and outside every task: a fault
// there arises where the application expects it, and a handler may use the driver. Synchronous copies that involve the
// host wait for the stream and then move the bytes in the calling thread as well.
#include "toolchain/softgpu/driver/copy/copy.h"

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "toolchain/softgpu/driver/base/counts.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/array.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/memory/pool.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {
namespace {

// What an asynchronous copy from pageable memory takes of the driver's own memory, rows at a distance of their own: up
// to 2 MiB such a copy returns before its stream gets there (H200: linear copies of 2.5 MiB wait, and 2097 rows of 1000
// bytes; 2048 of 1024 bytes return).
constexpr std::uint64_t most_staged = 2ull << 20;
std::uint64_t to_stage(const CopyOp& op) {
    constexpr std::uint64_t apart = 16;
    return op.height * op.depth == 1 ? op.width : (op.width + apart - 1) / apart * apart * op.height * op.depth;
}

bool move_row(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    while (bytes > 0) {
        std::uint64_t run = bytes;
        std::byte* target = bytes_at(to, run, run, true);
        const std::byte* source = bytes_at(from, run, run, false);
        if (!target || !source) return false;
        std::memmove(target, source, run);
        to += run;
        from += run;
        bytes -= run;
    }
    return true;
}

// Both ends dense: one row.
CopyOp flattened(CopyOp op) {
    if (op.height > 1 && op.to.pitch == op.width && op.from.pitch == op.width &&
        (op.depth == 1 || (op.to.slice == op.width * op.height && op.from.slice == op.width * op.height))) {
        op.width = op.bytes();
        op.height = op.depth = 1;
    }
    return op;
}

AllocationRef on_device_at(std::uint64_t address) {
    AllocationRef allocation = driver().addresses.find(address);
    return allocation && allocation->on_device() ? allocation : nullptr;
}

// Whether the device that holds `from` may access `to`.
bool reaches(const Allocation& from, const Allocation& to) {
    if (to.kind == Kind::Pool) return pool_reaches(to, from.device->ordinal);
    if (to.kind == Kind::Device) return from.context && to.context && from.context->may_reach(*to.context);
    return to.access.contains(from.device->ordinal);
}

void occupy_links(const CopyOp& op, bool pageable, Clock::time_point start) {
    const Options& options = driver().options;
    const std::uint64_t rate = pageable && options.pageable ? options.pageable : options.link;
    if (rate == 0 && options.latency == 0 && options.devices == 1) return;
    const AllocationRef to = on_device_at(op.to.address), from = on_device_at(op.from.address);
    if ((to ? to->device : nullptr) == (from ? from->device : nullptr)) return;
    if (to && from) {
        const bool direct = reaches(*to, *from) && reaches(*from, *to);
        (direct ? peer_bytes.direct : peer_bytes.through_host) += op.bytes();
        if (direct) return;
    }
    if (from) from->device->link.finish(Link::ToHost, op.bytes(), rate, start);
    // Through the host it goes one way after the other: a driver's own pipeline is poor (docs/hardware.md: 38 of 55
    // GB/s).
    if (to && from) start = Clock::now();
    if (to) to->device->link.finish(Link::ToDevice, op.bytes(), rate, start);
}

CUresult move(const CopyOp& operation, bool pageable) {
    const auto start = Clock::now();
    const CopyOp op = flattened(operation);
    const std::chrono::microseconds latency(driver().options.device_latency);
    if (latency.count() != 0 && on_device_at(op.to.address) && on_device_at(op.from.address)) {
        std::this_thread::sleep_for(latency);
    }
    for (std::size_t z = 0; z < op.depth; ++z)
        for (std::size_t y = 0; y < op.height; ++y)
            if (!move_row(op.to.address + z * op.to.slice + y * op.to.pitch,
                          op.from.address + z * op.from.slice + y * op.from.pitch, op.width))
                return CUDA_ERROR_ILLEGAL_ADDRESS;
    occupy_links(op, pageable, start);
    return CUDA_SUCCESS;
}

// The source's rows, packed, in memory of the driver's own.
CopyOp staged(const CopyOp& op) {
    CopyOp copy = op;
    copy.staged = std::shared_ptr<std::byte[]>(new std::byte[op.bytes()]);
    copy.from = {reinterpret_cast<std::uint64_t>(copy.staged.get()), op.width, op.width * op.height};
    std::byte* out = copy.staged.get();
    for (std::size_t z = 0; z < op.depth; ++z)
        for (std::size_t y = 0; y < op.height; ++y, out += op.width)
            std::memcpy(out, reinterpret_cast<const void*>(op.from.address + z * op.from.slice + y * op.from.pitch),
                        op.width);
    return copy;
}

void copy_in_this_thread(Stream& stream, const CopyOp& op, bool pageable) {
    const Turn turn(stream);
    turn.wait();
    const CUresult result = move(op, pageable);
    require(result == CUDA_SUCCESS, result);
}

enum class Wait { No, Yes };

CUresult copy(CUstream handle, CopyOp op, Wait wait) {
    const auto stream = stream_of(handle);
    if (op.bytes() == 0) return CUDA_SUCCESS;
    const Place to = place_of(op.to.address, op.span(op.to));
    const Place from = place_of(op.from.address, op.span(op.from));
    const bool pageable = to == Place::Pageable || from == Place::Pageable;
    if (!is_capturing(*stream)) {
        const Device* const by = op.between_peers ? nullptr : &stream->context.device();
        if (to == Place::OnDevice) check_access(op.to.address, op.span(op.to), true, by);
        if (from == Place::OnDevice) check_access(op.from.address, op.span(op.from), false, by);
    }
    if (wait == Wait::Yes) {
        forbid_capturing(*stream);
        forbid_implicit_sync(*stream);
        if (to == Place::OnDevice && from == Place::OnDevice) {
            // Asynchronous for the host even in the synchronous form, unless the application asked otherwise.
            const bool wait_too =
                waits_always(stream->context, op.to.address) || waits_always(stream->context, op.from.address);
            submit(*stream, std::move(op));
            if (wait_too) synchronize(*stream);
        } else {
            copy_in_this_thread(*stream, op, pageable);
        }
        return CUDA_SUCCESS;
    }
    if (!pageable || is_capturing(*stream)) {
        submit(*stream, std::move(op));
    } else if (to == Place::Pageable || to_stage(op) > most_staged) {
        forbid_implicit_sync(*stream);
        copy_in_this_thread(*stream, op, true);
    } else {
        submit(*stream, staged(op));
    }
    return CUDA_SUCCESS;
}

std::uint64_t number(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

CopyOp line(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
    CopyOp op;
    op.to.address = to;
    op.from.address = from;
    op.width = bytes;
    return op;
}

// For sides that a function's name declares to be device memory.
void must_be_known(std::uint64_t address, std::size_t bytes) {
    if (bytes) require(place_of(address, bytes) != Place::Pageable);
}

CUresult to_device(CUstream stream, CUdeviceptr to, const void* from, std::size_t bytes, Wait wait) {
    must_be_known(to, bytes);
    require(from != nullptr || bytes == 0);
    return copy(stream, line(to, number(from), bytes), wait);
}
CUresult to_host(CUstream stream, void* to, CUdeviceptr from, std::size_t bytes, Wait wait) {
    must_be_known(from, bytes);
    require(to != nullptr || bytes == 0);
    return copy(stream, line(number(to), from, bytes), wait);
}
CUresult on_device(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Wait wait) {
    must_be_known(to, bytes);
    must_be_known(from, bytes);
    return copy(stream, line(to, from, bytes), wait);
}
CopyOp between_peers(CopyOp op) {
    op.between_peers = true;
    return op;
}
CUresult peers(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Wait wait) {
    must_be_known(to, bytes);
    must_be_known(from, bytes);
    return copy(stream, between_peers(line(to, from, bytes)), wait);
}
CUresult unified(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Wait wait) {
    require(bytes == 0 || (to != 0 && from != 0));
    return copy(stream, line(to, from, bytes), wait);
}

// One side of a copy of width x height x depth (width in bytes) at a position. Throws INVALID_VALUE when that is not
// within the array.
CopyEnd array_end(CUarray handle, std::size_t x, std::size_t y, std::size_t z, const CopyOp& copy) {
    const auto array = array_of(handle);
    // Bytes, whatever the elements are: a copy may begin and end within one.
    const auto within = [](std::size_t at, std::size_t count, std::size_t all) {
        return at <= all && count <= all - at;
    };
    require(within(x, copy.width, array->pitch) && within(y, copy.height, array->rows()) &&
            within(z, copy.depth, array->planes()));
    return {array->address + z * array->slice() + y * array->pitch + x, array->pitch, array->slice()};
}

// The same for `bytes` of the first row.
CopyEnd array_line(CUarray handle, std::size_t offset, std::size_t bytes) {
    const auto array = array_of(handle);
    if (bytes == 0) return {array->address, 0, 0};
    require(offset <= array->pitch && bytes <= array->pitch - offset);
    return {array->address + offset, 0, 0};
}

// Bytes of the first row of an array, and bytes in one dimension anywhere else.
enum class ArraySide { To, From };
CUresult with_array(CUstream stream, CUarray array, std::size_t offset, ArraySide side, std::uint64_t other,
                    std::size_t bytes, Wait wait) {
    require(other != 0 || bytes == 0);
    const CopyEnd end = array_line(array, offset, bytes);
    return copy(stream, side == ArraySide::To ? line(end.address, other, bytes) : line(other, end.address, bytes),
                wait);
}

CopyEnd end_of(CUmemorytype type, const void* host, CUdeviceptr device, CUarray array, std::size_t pitch,
               std::size_t height, std::size_t x, std::size_t y, std::size_t z, const CopyOp& op) {
    require(type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ||
            type == CU_MEMORYTYPE_ARRAY);
    if (type == CU_MEMORYTYPE_ARRAY) return array_end(array, x, y, z, op);
    CopyEnd end;
    if (pitch == 0) pitch = x + op.width;
    if (height == 0) height = y + op.height;
    // Even of a single row, and of a single layer.
    require(op.bytes() == 0 || (x + op.width <= pitch && y + op.height <= height));
    const std::uint64_t base = type == CU_MEMORYTYPE_HOST ? number(host) : device;
    require(base != 0 || op.bytes() == 0);
    end.pitch = pitch;
    end.slice = pitch * height;
    end.address = base + z * end.slice + y * pitch + x;
    if (type == CU_MEMORYTYPE_DEVICE && op.bytes()) must_be_known(end.address, op.span(end));
    return end;
}

CopyOp copy_of_2d(const CUDA_MEMCPY2D* d) {
    require(d != nullptr);
    CopyOp op;
    op.width = d->WidthInBytes;
    op.height = d->Height;
    op.to =
        end_of(d->dstMemoryType, d->dstHost, d->dstDevice, d->dstArray, d->dstPitch, 0, d->dstXInBytes, d->dstY, 0, op);
    op.from =
        end_of(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcArray, d->srcPitch, 0, d->srcXInBytes, d->srcY, 0, op);
    return op;
}

// Between an array of lines in layers and memory of a device the rows of a slice beyond the first are not skipped: seen
// on an H200, and not with memory of the host.
bool in_lines(CUmemorytype type, CUarray array, CUmemorytype other, CUdeviceptr address) {
    if (type != CU_MEMORYTYPE_ARRAY || other == CU_MEMORYTYPE_ARRAY || other == CU_MEMORYTYPE_HOST) return false;
    const auto& descriptor = array_of(array)->descriptor;
    if (descriptor.Height != 0 || descriptor.Depth == 0) return false;
    const AllocationRef there = driver().addresses.find(address);
    return there && (there->on_device() || there->kind == Kind::Managed);
}

template <class Descriptor>
CopyOp copy_of_3d(const Descriptor* given) {
    require(given != nullptr && given->srcLOD == 0 && given->dstLOD == 0);
    Descriptor settled = *given;
    auto* const d = &settled;
    if (in_lines(d->dstMemoryType, d->dstArray, d->srcMemoryType, d->srcDevice)) d->srcHeight = 1;
    if (in_lines(d->srcMemoryType, d->srcArray, d->dstMemoryType, d->dstDevice)) d->dstHeight = 1;
    CopyOp op;
    op.width = d->WidthInBytes;
    op.height = d->Height;
    op.depth = d->Depth;
    op.to = end_of(d->dstMemoryType, d->dstHost, d->dstDevice, d->dstArray, d->dstPitch, d->dstHeight, d->dstXInBytes,
                   d->dstY, d->dstZ, op);
    op.from = end_of(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcArray, d->srcPitch, d->srcHeight, d->srcXInBytes,
                     d->srcY, d->srcZ, op);
    return op;
}

// A peer copy without a stream comes after all work of the current context and of both others, and before what they are
// given later (cudaMemcpyPeer in the runtime's manual).
template <class Copy>
CUresult between(Context& to, Context& from, Copy&& copy) {
    to.check();
    from.check();
    const auto stream = stream_of(nullptr);
    {
        const std::lock_guard lock(driver().order);
        std::vector<TaskRef> before;
        for (Context* context : {&to, &from}) {
            const auto more = predecessors(*context->legacy);
            before.insert(before.end(), more.begin(), more.end());
        }
        append(
            *stream, [] {}, before);
    }
    const CUresult result = copy();
    const std::lock_guard lock(driver().order);
    for (Context* context : {&to, &from}) {
        if (context->legacy != stream)
            append(
                *context->legacy, [] {}, std::array{stream->tail});
    }
    return result;
}

}  // namespace

CUresult run(Context&, const CopyOp& op) { return move(op, op.staged != nullptr); }

CopyOp copy_of(const CUDA_MEMCPY3D& descriptor) { return copy_of_3d(&descriptor); }

void check_ranges(const CopyOp& op) {
    if (op.bytes() == 0) return;
    place_of(op.to.address, op.span(op.to));
    place_of(op.from.address, op.span(op.from));
}

CUresult api::cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) { return unified(nullptr, dst, src, n, Wait::Yes); }
CUresult api::cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return unified(stream, dst, src, n, Wait::No);
}
CUresult api::cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t n) {
    return to_device(nullptr, dst, src, n, Wait::Yes);
}
CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t n, CUstream stream) {
    return to_device(stream, dst, src, n, Wait::No);
}
CUresult api::cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t n) { return to_host(nullptr, dst, src, n, Wait::Yes); }
CUresult api::cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t n, CUstream stream) {
    return to_host(stream, dst, src, n, Wait::No);
}
CUresult api::cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return on_device(nullptr, dst, src, n, Wait::Yes);
}
CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return on_device(stream, dst, src, n, Wait::No);
}

CUresult api::cuMemcpyHtoA_v2(CUarray dst, size_t offset, const void* src, size_t n) {
    return with_array(nullptr, dst, offset, ArraySide::To, number(src), n, Wait::Yes);
}
CUresult api::cuMemcpyHtoAAsync_v2(CUarray dst, size_t offset, const void* src, size_t n, CUstream stream) {
    return with_array(stream, dst, offset, ArraySide::To, number(src), n, Wait::No);
}
CUresult api::cuMemcpyAtoH_v2(void* dst, CUarray src, size_t offset, size_t n) {
    return with_array(nullptr, src, offset, ArraySide::From, number(dst), n, Wait::Yes);
}
CUresult api::cuMemcpyAtoHAsync_v2(void* dst, CUarray src, size_t offset, size_t n, CUstream stream) {
    return with_array(stream, src, offset, ArraySide::From, number(dst), n, Wait::No);
}
CUresult api::cuMemcpyDtoA_v2(CUarray dst, size_t offset, CUdeviceptr src, size_t n) {
    must_be_known(src, n);
    return with_array(nullptr, dst, offset, ArraySide::To, src, n, Wait::Yes);
}
CUresult api::cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t offset, size_t n) {
    must_be_known(dst, n);
    return with_array(nullptr, src, offset, ArraySide::From, dst, n, Wait::Yes);
}
CUresult api::cuMemcpyAtoA_v2(CUarray dst, size_t to, CUarray src, size_t from, size_t n) {
    // Bytes, whatever the elements of the two are: offsets may lie within one.
    return with_array(nullptr, dst, to, ArraySide::To, array_line(src, from, n).address, n, Wait::Yes);
}

CUresult api::cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n) {
    Context& here = current();
    return between(to != nullptr ? context_of(to) : here, from != nullptr ? context_of(from) : here,
                   [&] { return peers(nullptr, dst, src, n, Wait::Yes); });
}
CUresult api::cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n,
                                CUstream stream) {
    for (const CUcontext side : {to, from})
        if (side != nullptr) context_of(side).check();
    return peers(stream, dst, src, n, Wait::No);
}

CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* d) { return copy(nullptr, copy_of_2d(d), Wait::Yes); }
CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* d) { return copy(nullptr, copy_of_2d(d), Wait::Yes); }
CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* d, CUstream stream) {
    return copy(stream, copy_of_2d(d), Wait::No);
}
CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* d) { return copy(nullptr, copy_of_3d(d), Wait::Yes); }
CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* d, CUstream stream) {
    return copy(stream, copy_of_3d(d), Wait::No);
}
CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* d) {
    require(d != nullptr);
    Context& here = current();
    return between(d->dstContext != nullptr ? context_of(d->dstContext) : here,
                   d->srcContext != nullptr ? context_of(d->srcContext) : here,
                   [&] { return copy(nullptr, between_peers(copy_of_3d(d)), Wait::Yes); });
}
CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* d, CUstream stream) {
    return copy(stream, between_peers(copy_of_3d(d)), Wait::No);
}

}  // namespace hpe::soft
