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

// Host pointers that are objects become device pointers.
template <class Pointer>
void name_device(CUmemorytype& type, Pointer host, CUdeviceptr& device) {
    if (type != CU_MEMORYTYPE_HOST || !is_object(host)) return;
    device = address(host);
    type = CU_MEMORYTYPE_DEVICE;
}
template <class Descriptor>
void name_objects(Descriptor& d) {
    name_device(d.srcMemoryType, d.srcHost, d.srcDevice);
    name_device(d.dstMemoryType, d.dstHost, d.dstDevice);
}

// One side of a descriptor: where the first row begins, how far apart rows are, and how many there are to a slice.
struct RowsOf {
    CUmemorytype type;
    std::uintptr_t memory;
    std::size_t x, y, pitch;
    std::size_t z = 0, height = 0;  // 0: in two dimensions, or one slice

    // The driver's own bound, of a height that is given.
    bool fits(std::size_t rows) const noexcept { return height == 0 || (y <= height && rows <= height - y); }
    // Whether rows, as well as slices, follow each other at the pitch.
    bool regular(std::size_t rows, std::size_t slices) const noexcept { return slices == 1 || height == rows; }
    std::uintptr_t first() const noexcept { return memory + (z * height + y) * pitch + x; }
    bool may_be(CUmemorytype wanted) const noexcept { return type == wanted || type == CU_MEMORYTYPE_UNIFIED; }
    // From the first byte to the last; nothing of an array.
    DeviceRange range(std::size_t width, std::size_t rows, std::size_t slices) const noexcept {
        if (!may_be(CU_MEMORYTYPE_HOST) && !may_be(CU_MEMORYTYPE_DEVICE)) return {};
        const bool none = width == 0 || rows == 0 || slices == 0;
        return {first(), none ? 0 : ((slices - 1) * height + rows - 1) * pitch + width};
    }
};

// CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER name these fields alike.
template <class Descriptor>
RowsOf source_of(const Descriptor& d) {
    const auto memory = d.srcMemoryType == CU_MEMORYTYPE_HOST ? address(d.srcHost) : address(d.srcDevice);
    RowsOf side{d.srcMemoryType, memory, d.srcXInBytes, d.srcY, d.srcPitch};
    if constexpr (requires { d.Depth; }) side.z = d.srcZ, side.height = d.srcHeight;
    return side;
}
template <class Descriptor>
RowsOf target_of(const Descriptor& d) {
    const auto memory = d.dstMemoryType == CU_MEMORYTYPE_HOST ? address(d.dstHost) : address(d.dstDevice);
    RowsOf side{d.dstMemoryType, memory, d.dstXInBytes, d.dstY, d.dstPitch};
    if constexpr (requires { d.Depth; }) side.z = d.dstZ, side.height = d.dstHeight;
    return side;
}
template <class Descriptor>
std::size_t slices_of(const Descriptor& d) {
    if constexpr (requires { d.Depth; }) {
        return d.Depth;
    } else {
        return 1;
    }
}

// --- between the program's memory and the device -------------------------------------------------------------------

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

// Whether it names nothing but rows.
inline bool is_plain(const CUDA_MEMCPY2D&) { return true; }
inline bool is_plain(const CUDA_MEMCPY3D& d) {
    return d.srcLOD == 0 && d.dstLOD == 0 && d.reserved0 == nullptr && d.reserved1 == nullptr;
}
// The contexts are named by the program, and need not be the current one.
inline bool is_plain(const CUDA_MEMCPY3D_PEER&) { return false; }

template <class C, class Descriptor, class... Stream>
CUresult copy_rows(const C& call, const Descriptor* given, Stream... stream) {
    if (given == nullptr) return returned<Stream...>(call(given, stream...));
    const auto in = stream_of(stream...);
    auto descriptor = *given;
    name_objects(descriptor);
    const auto to = target_of(descriptor), from = source_of(descriptor);
    const auto width = descriptor.WidthInBytes, rows = descriptor.Height, slices = slices_of(descriptor);
    const auto bytes = width * rows * slices;
    const Touched touched{to.range(width, rows, slices), from.range(width, rows, slices)};
    const auto& [written, read] = touched;
    // The program's own memory needs nothing before the copy.
    const auto on_device = [](const RowsOf& side, DeviceRange range) {
        return side.type == CU_MEMORYTYPE_HOST ? DeviceRange{} : range;
    };
    const auto device_to = on_device(to, written), device_from = on_device(from, read);
    expect_copy(device_to.begin, device_from.begin, bytes);
    unread::Overwriting overwriting(written.begin, written.bytes, read.begin, read.bytes, written.bytes == bytes);
    const CUresult result = device_work(
        in, call.flavour, [&] { return before_copy(device_to, device_from, in, call.flavour); },
        [&] {
            const auto theirs = [&] {
                const CUresult begun = call(&descriptor, stream...);
                const bool to_host = given->dstMemoryType != descriptor.dstMemoryType,
                           from_host = given->srcMemoryType != descriptor.srcMemoryType;
                if (kWaits<Stream...>) return to_host || from_host ? until_made(begun, in, call.flavour) : begun;
                return to_host ? until_returned(begun, bytes, in, call.flavour) : begun;
            };
            const auto ours = is_plain(descriptor) ? between(to, from, width, rows, slices) : std::nullopt;
            if (!ours) return theirs();
            return copy_of_host(ours->direction, ours->device, ours->host, ours->extent, in, call.flavour,
                                kReturns<Stream...>, theirs);
        },
        &touched);
    return returned<Stream...>(ended(overwriting, result));
}

}  // namespace hpe::doors
