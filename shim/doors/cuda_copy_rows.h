// SPDX-License-Identifier: MIT
// Doors of copies in two and three dimensions. They flush or invalidate all blocks between the first byte and the last,
// also those that lie between rows.
//
// Sizes and pitches in bytes. Threads, ownership and errors: door.h.
#pragma once

#include <limits>
#include <optional>

#include "shim/doors/cuda_copy.h"

namespace hpe::doors {

// One side of a descriptor: where it begins and ends in memory, and its host pointer turned into a device pointer if
// that is an object.
struct Side {
    DeviceRange device;   // empty for the program's own memory
    DeviceRange touched;  // of device or host; empty for an array
};
template <class Pointer>
Side side(CUmemorytype& type, Pointer& host, CUdeviceptr& device, std::size_t first, std::size_t bytes) {
    if (type == CU_MEMORYTYPE_HOST && is_object(host)) {
        device = address(host);
        type = CU_MEMORYTYPE_DEVICE;
    }
    if (type == CU_MEMORYTYPE_HOST) return {{}, {address(host) + first, bytes}};
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) return {};
    const DeviceRange range{address(device) + first, bytes};
    return {range, range};
}

struct Sides {
    Side to, from;
    Touched touched() const { return {to.touched, from.touched}; }
};

inline Sides sides_of(CUDA_MEMCPY2D& d) {
    const auto extent = [&](std::size_t pitch) {
        return d.Height == 0 || d.WidthInBytes == 0 ? 0 : (d.Height - 1) * pitch + d.WidthInBytes;
    };
    const auto from =
        side(d.srcMemoryType, d.srcHost, d.srcDevice, d.srcY * d.srcPitch + d.srcXInBytes, extent(d.srcPitch));
    const auto to =
        side(d.dstMemoryType, d.dstHost, d.dstDevice, d.dstY * d.dstPitch + d.dstXInBytes, extent(d.dstPitch));
    return {to, from};
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name these fields alike.
template <class Descriptor>
Sides sides_of(Descriptor& d) {
    const auto begin = [](std::size_t x, std::size_t y, std::size_t z, std::size_t pitch, std::size_t height) {
        return (z * height + y) * pitch + x;
    };
    const auto extent = [&](std::size_t pitch, std::size_t height) {
        return d.Depth == 0 || d.Height == 0 || d.WidthInBytes == 0
                   ? 0
                   : ((d.Depth - 1) * height + d.Height - 1) * pitch + d.WidthInBytes;
    };
    const auto from =
        side(d.srcMemoryType, d.srcHost, d.srcDevice, begin(d.srcXInBytes, d.srcY, d.srcZ, d.srcPitch, d.srcHeight),
             extent(d.srcPitch, d.srcHeight));
    const auto to =
        side(d.dstMemoryType, d.dstHost, d.dstDevice, begin(d.dstXInBytes, d.dstY, d.dstZ, d.dstPitch, d.dstHeight),
             extent(d.dstPitch, d.dstHeight));
    return {to, from};
}

inline std::size_t bytes_of(const CUDA_MEMCPY2D& d) { return d.WidthInBytes * d.Height; }
template <class Descriptor>
std::size_t bytes_of(const Descriptor& d) {
    return d.WidthInBytes * d.Height * d.Depth;
}

// --- between the program's memory and the device -------------------------------------------------------------------

// One side: where the first row begins, how far apart rows are, and how many there are to a slice.
struct RowsOf {
    CUmemorytype type;
    std::uintptr_t memory;
    std::size_t x, pitch, height;  // 0: in two dimensions, or one slice
    std::size_t y, z;

    // The driver's own bound, of a height that is given.
    bool fits(std::size_t rows) const noexcept { return height == 0 || (y <= height && rows <= height - y); }
    // Whether rows, as well as slices, follow each other at the pitch.
    bool regular(std::size_t rows, std::size_t slices) const noexcept { return slices == 1 || height == rows; }
    std::uintptr_t first() const noexcept { return memory + (z * height + y) * pitch + x; }
    bool may_be(CUmemorytype wanted) const noexcept { return type == wanted || type == CU_MEMORYTYPE_UNIFIED; }
};

struct BetweenHostAndDevice {
    Direction direction;
    CUdeviceptr device;
    void* host;
    staging::Extent extent;
};

// The copy as one set of rows, or as linear memory. Nothing: it is another kind of copy, or its slices are not rows of
// one pitch, or the driver will refuse it.
inline std::optional<BetweenHostAndDevice> between(const RowsOf& to, const RowsOf& from, std::size_t width,
                                                   std::size_t rows, std::size_t slices) {
    constexpr std::size_t kMostPitch = std::numeric_limits<int>::max();  // the driver's own bound
    constexpr std::size_t kMostRows = std::size_t{1} << 31;
    if (width == 0 || rows == 0 || slices == 0 || rows > kMostRows || slices > kMostRows / rows) return {};
    for (const auto* side : {&to, &from}) {
        if (side->pitch > kMostPitch || side->x > side->pitch || width > side->pitch - side->x) return {};
        if (!side->fits(rows) || !side->regular(rows, slices) || side->memory == 0) return {};
    }
    const bool host_first =
        from.type == CU_MEMORYTYPE_HOST ||
        (from.type == CU_MEMORYTYPE_UNIFIED && to.type != CU_MEMORYTYPE_HOST && !is_object(pointer(from.memory)));
    const auto& host = host_first ? from : to;
    const auto& device = host_first ? to : from;
    if (!host.may_be(CU_MEMORYTYPE_HOST) || !device.may_be(CU_MEMORYTYPE_DEVICE)) return {};
    staging::Extent extent{width, rows * slices, host.pitch, device.pitch};
    if (host.pitch == width && device.pitch == width) extent = {extent.bytes()};
    return BetweenHostAndDevice{host_first ? Direction::ToDevice : Direction::ToHost, device.first(),
                                pointer(host.first()), extent};
}

inline std::uintptr_t memory_of(CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? address(host) : device;
}
inline std::optional<BetweenHostAndDevice> between_host_and_device(const CUDA_MEMCPY2D& d) {
    return between(
        {d.dstMemoryType, memory_of(d.dstMemoryType, d.dstHost, d.dstDevice), d.dstXInBytes, d.dstPitch, 0, d.dstY, 0},
        {d.srcMemoryType, memory_of(d.srcMemoryType, d.srcHost, d.srcDevice), d.srcXInBytes, d.srcPitch, 0, d.srcY, 0},
        d.WidthInBytes, d.Height, 1);
}
inline std::optional<BetweenHostAndDevice> between_host_and_device(const CUDA_MEMCPY3D& d) {
    if (d.srcLOD != 0 || d.dstLOD != 0 || d.reserved0 != nullptr || d.reserved1 != nullptr) return {};
    return between({d.dstMemoryType, memory_of(d.dstMemoryType, d.dstHost, d.dstDevice), d.dstXInBytes, d.dstPitch,
                    d.dstHeight, d.dstY, d.dstZ},
                   {d.srcMemoryType, memory_of(d.srcMemoryType, d.srcHost, d.srcDevice), d.srcXInBytes, d.srcPitch,
                    d.srcHeight, d.srcY, d.srcZ},
                   d.WidthInBytes, d.Height, d.Depth);
}
// The contexts are named by the program, and need not be the current one.
inline std::optional<BetweenHostAndDevice> between_host_and_device(const CUDA_MEMCPY3D_PEER&) { return {}; }

template <class C, class Descriptor, class... Stream>
CUresult copy_rows(const C& call, const Descriptor* given, Stream... stream) {
    if (given == nullptr) return returned<Stream...>(call(given, stream...));
    const auto in = stream_of(stream...);
    auto descriptor = *given;
    const auto sides = sides_of(descriptor);
    const auto touched = sides.touched();
    expect_copy(sides.to.device.begin, sides.from.device.begin, bytes_of(descriptor));
    const auto& [written, read] = touched;
    unread::Overwriting overwriting(written.begin, written.bytes, read.begin, read.bytes,
                                    written.bytes == bytes_of(descriptor));
    const CUresult result = device_work(
        in, call.flavour, [&] { return before_copy(sides.to.device, sides.from.device, in, call.flavour); },
        [&] {
            const auto theirs = [&] {
                const CUresult begun = call(&descriptor, stream...);
                const bool to_host = given->dstMemoryType != descriptor.dstMemoryType,
                           from_host = given->srcMemoryType != descriptor.srcMemoryType;
                if (kWaits<Stream...>) return to_host || from_host ? until_made(begun, in, call.flavour) : begun;
                return to_host ? until_returned(begun, bytes_of(descriptor), in, call.flavour) : begun;
            };
            const auto rows = between_host_and_device(descriptor);
            if (!rows) return theirs();
            return copy_of_host(rows->direction, rows->device, rows->host, rows->extent, in, call.flavour,
                                kReturns<Stream...>, theirs);
        },
        &touched);
    return returned<Stream...>(ended(overwriting, result));
}

}  // namespace hpe::doors
