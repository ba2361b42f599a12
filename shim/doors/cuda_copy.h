// SPDX-License-Identifier: MIT
// Doors of copies and memsets, except those of rows (cuda_copy_rows.h). Each flushes or invalidates the blocks of its
// ranges, then makes the program's own call.
//
// A copy whose "host" side is an object is a copy on the device: the CPU's view of an object is its device address, and
// the newest bytes are there once its Dirty blocks are flushed. CUDA waits for no copy on a device, but for those from
// and to host memory, and for asynchronous ones to pageable memory ("API synchronization behavior"): so libhpe waits.
// Not for asynchronous ones so small that the driver keeps their bytes and returns at once: what the copy's stream
// waits for may come after the call.
//
// A treatment of both forms of a call is given the stream, or nothing: then the call returns when the copy is made.
//
// Sizes and pitches in bytes. Threads, ownership and errors: door.h.
#pragma once

#include "shim/base/address.h"
#include "shim/copies/pageable.h"
#include "shim/copies/wasted.h"
#include "shim/doors/cuda_memory.h"
#include "shim/doors/cuda_peers.h"
#include "shim/observe/unread.h"

namespace hpe::doors {

using hpe::address;  // beside that of a CUdeviceptr

inline bool is_object(const void* pointer) {
    return coherence().table().count() != 0 && coherence().object_of(address(pointer)) != nullptr;
}

// The stream waits for the flushes before the copy, not the CPU; as for a launch.
inline CUresult before_copy(DeviceRange to, DeviceRange from, CUstream stream, Flavour flavour) {
    const auto in = named(stream, flavour);
    const CUresult result = coherence().before_device_reads(from, &in);
    return result == CUDA_SUCCESS ? coherence().before_device_writes(to, &in) : result;
}

// A call that returns when the device is done is a wait of the program, too.
inline CUresult after_wait(CUresult result) {
    if (result != CUDA_SUCCESS) return result;
    if (coherence().page_open()) [[unlikely]] {
        uncached::let_step_end();
    }
    peers.waited();
    coherence().end_loans();
    if (coherence().acts_on_acquire()) coherence().acquire();
    return coherence().sticky_error();
}

// Of a call with a stream, or without.
template <class... Stream>
constexpr bool kWaits = sizeof...(Stream) == 0;
template <class... Stream>
constexpr auto kReturns = kWaits<Stream...> ? pageable::Return::Done : pageable::Return::Ordered;
template <class... Stream>
CUresult returned(CUresult result) {
    return kWaits<Stream...> ? after_wait(result) : result;
}

// A captured copy is made later, when all is open (launch_graph).
inline CUresult ended(unread::Overwriting& overwriting, CUresult result) {
    if (result == CUDA_SUCCESS && !in_flight.capturing_anywhere()) overwriting.made();
    return result;
}

template <class Real>
CUresult copy(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, CUstream stream, Flavour flavour,
              Real&& real) {
    const Touched touched{{to, bytes}, {from, bytes}};
    unread::Overwriting overwriting(to, from, bytes);
    const CUresult result = device_work(
        stream, flavour, [&] { return before_copy(touched.written, touched.read, stream, flavour); }, real, &touched);
    return ended(overwriting, result);
}

// Perhaps between two devices.
template <class Real>
CUresult copy_on_devices(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream, Flavour flavour,
                         Real&& real) {
    expect_copy(to, from, bytes);
    return copy(to, from, bytes, stream, flavour, real);
}

// Whether the driver knows the address: then a copy by addresses is the same as one that names the device's side.
inline bool is_known(CUdeviceptr pointer) {
    Inside inside;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return driver.cuMemGetAddressRange_v2(&base, &size, pointer) == CUDA_SUCCESS;
}
// Until a copy on the device that stands for one from or to host memory is made.
inline CUresult until_made(CUresult begun, CUstream stream, Flavour flavour) {
    if (begun != CUDA_SUCCESS || in_flight.capturing(stream, flavour)) return begun;
    Inside inside;
    const CaptureRelaxed relaxed;  // another thread's capture forbids the wait, but not the program's copy
    return driver.cuStreamSynchronize(named(stream, flavour));
}
// The same of an asynchronous one to pageable memory.
inline CUresult until_returned(CUresult begun, std::size_t bytes, CUstream stream, Flavour flavour) {
    return bytes <= pageable::kKeptToHost ? begun : until_made(begun, stream, flavour);
}
inline CUresult unified(Flavour flavour, CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    Inside inside;
    return until_made((flavour == Flavour::PerThread ? driver.cuMemcpy_ptds : driver.cuMemcpy)(to, from, bytes),
                      nullptr, flavour);
}
inline CUresult unified(Flavour flavour, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    Inside inside;
    return (flavour == Flavour::PerThread ? driver.cuMemcpyAsync_ptsz : driver.cuMemcpyAsync)(to, from, bytes, stream);
}

// Between the program's memory and the device.
using Direction = pageable::Copy::Direction;
template <class Driver>
CUresult copy_of_host(Direction direction, CUdeviceptr device, const void* host, const staging::Extent& extent,
                      CUstream stream, Flavour flavour, pageable::Return returns, Driver&& driver) {
    Inside inside;
    const CUresult result =
        pageable::copy({direction, device, const_cast<void*>(host), extent, stream, flavour, returns}, driver);
    if (call_stacks::on() && result == CUDA_SUCCESS && !in_flight.capturing_anywhere()) {
        wasted::copied({direction == Direction::ToDevice, device, host, extent.width, extent.rows, extent.host_pitch,
                        returns == pageable::Return::Done});
    }
    return result;
}

// Between addresses of any kind: perhaps an object on one side and the program's own memory on the other.
template <class C, class... Stream>
CUresult copy_unified(const C& call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Stream... stream) {
    const auto in = stream_of(stream...);
    const auto real = [&] { return call(to, from, bytes, stream...); };
    return returned<Stream...>(copy_on_devices(to, from, bytes, in, call.flavour, [&] {
        const bool to_object = is_object(pointer(to));
        if (to_object == is_object(pointer(from))) return real();
        return copy_of_host(to_object ? Direction::ToDevice : Direction::ToHost, to_object ? to : from,
                            pointer(to_object ? from : to), {bytes}, in, call.flavour, kReturns<Stream...>, real);
    }));
}

template <class C, class... Stream>
CUresult copy_to_device(const C& call, CUdeviceptr to, const void* from, std::size_t bytes, Stream... stream) {
    const auto in = stream_of(stream...);
    return returned<Stream...>(copy(to, address(from), bytes, in, call.flavour, [&] {
        if (is_object(from) && is_known(to)) return unified(call.flavour, to, address(from), bytes, stream...);
        return copy_of_host(Direction::ToDevice, to, from, {bytes}, in, call.flavour, kReturns<Stream...>,
                            [&] { return call(to, from, bytes, stream...); });
    }));
}

template <class C, class... Stream>
CUresult copy_to_host(const C& call, void* to, CUdeviceptr from, std::size_t bytes, Stream... stream) {
    const auto in = stream_of(stream...);
    return returned<Stream...>(copy(address(to), from, bytes, in, call.flavour, [&] {
        if (is_object(to) && is_known(from)) {
            const CUresult begun = unified(call.flavour, address(to), from, bytes, stream...);
            return kWaits<Stream...> ? begun : until_returned(begun, bytes, in, call.flavour);
        }
        return copy_of_host(Direction::ToHost, from, to, {bytes}, in, call.flavour, kReturns<Stream...>,
                            [&] { return call(to, from, bytes, stream...); });
    }));
}

template <class C, class... Stream>
CUresult copy_on_device(const C& call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Stream... stream) {
    return copy_on_devices(to, from, bytes, stream_of(stream...), call.flavour,
                           [&] { return call(to, from, bytes, stream...); });
}

template <class C, class... Stream>
CUresult copy_peer(const C& call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                   std::size_t bytes, Stream... stream) {
    return copy_on_devices(to, from, bytes, stream_of(stream...), call.flavour,
                           [&] { return call(to, to_context, from, from_context, bytes, stream...); });
}

template <class C, class... A>
CUresult copy_batch(const C& call, CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t count,
                    A... rest) {
    if (to != nullptr && from != nullptr && bytes != nullptr && peers.several_contexts()) {
        for (std::size_t i = 0; i < count; ++i) expect_copy(to[i], from[i], bytes[i]);
    }
    unread::open_all();
    return enqueue(call, to, from, bytes, count, rest...);
}

// Its descriptors may name any memory.
template <class C, class... A>
CUresult copy_3d_batch(const C& call, A... arguments) {
    unread::open_all();
    return enqueue(call, arguments...);
}

// --- 1D arrays: an object on the host side is a row of a copy between device and array -------------------------------

inline CUDA_MEMCPY2D row_to_array(CUarray to, std::size_t offset, const void* from, std::size_t bytes) {
    CUDA_MEMCPY2D row{};
    row.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    row.srcDevice = address(from);
    row.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    row.dstArray = to;
    row.dstXInBytes = offset;
    row.WidthInBytes = bytes;
    row.Height = 1;
    return row;
}
inline CUDA_MEMCPY2D row_of_array(void* to, CUarray from, std::size_t offset, std::size_t bytes) {
    CUDA_MEMCPY2D row{};
    row.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    row.srcArray = from;
    row.srcXInBytes = offset;
    row.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    row.dstDevice = address(to);
    row.WidthInBytes = bytes;
    row.Height = 1;
    return row;
}
inline CUresult one_row(Flavour flavour, const CUDA_MEMCPY2D& row) {
    Inside inside;
    return until_made((flavour == Flavour::PerThread ? driver.cuMemcpy2D_v2_ptds : driver.cuMemcpy2D_v2)(&row), nullptr,
                      flavour);
}
inline CUresult one_row(Flavour flavour, const CUDA_MEMCPY2D& row, CUstream stream) {
    Inside inside;
    return (flavour == Flavour::PerThread ? driver.cuMemcpy2DAsync_v2_ptsz : driver.cuMemcpy2DAsync_v2)(&row, stream);
}

template <class C, class... Stream>
CUresult copy_host_to_array(const C& call, CUarray to, std::size_t offset, const void* from, std::size_t bytes,
                            Stream... stream) {
    return returned<Stream...>(copy(0, address(from), bytes, stream_of(stream...), call.flavour, [&] {
        return is_object(from) ? one_row(call.flavour, row_to_array(to, offset, from, bytes), stream...)
                               : call(to, offset, from, bytes, stream...);
    }));
}
template <class C, class... Stream>
CUresult copy_array_to_host(const C& call, void* to, CUarray from, std::size_t offset, std::size_t bytes,
                            Stream... stream) {
    const auto in = stream_of(stream...);
    return returned<Stream...>(copy(address(to), 0, bytes, in, call.flavour, [&] {
        if (!is_object(to)) return call(to, from, offset, bytes, stream...);
        const CUresult begun = one_row(call.flavour, row_of_array(to, from, offset, bytes), stream...);
        return kWaits<Stream...> ? begun : until_returned(begun, bytes, in, call.flavour);
    }));
}

// --- memset --------------------------------------------------------------------------------------------------------

template <class Real>
CUresult set(DeviceRange to, CUstream stream, Flavour flavour, Real&& real) {
    const Touched touched{to, {}};
    const auto in = named(stream, flavour);
    return device_work(
        stream, flavour, [&] { return coherence().before_device_writes(to, &in); }, real, &touched);
}

template <class C, class Value, class... Stream>
CUresult memset_linear(const C& call, CUdeviceptr to, Value value, std::size_t count, Stream... stream) {
    return set({address(to), count * sizeof value}, stream_of(stream...), call.flavour,
               [&] { return call(to, value, count, stream...); });
}
template <class C, class Value, class... Stream>
CUresult memset_2d(const C& call, CUdeviceptr to, std::size_t pitch, Value value, std::size_t width, std::size_t height,
                   Stream... stream) {
    const auto bytes = height == 0 ? 0 : (height - 1) * pitch + width * sizeof value;
    return set({address(to), bytes}, stream_of(stream...), call.flavour,
               [&] { return call(to, pitch, value, width, height, stream...); });
}

}  // namespace hpe::doors
