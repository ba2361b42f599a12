// SPDX-License-Identifier: MIT
// Moves bytes between a shadow's view and the device. One non-blocking stream per direction and context, which waits
// for no work of the program: the caller has waited for that already (InFlight).
//
// Errors: the driver's. What was enqueued may then still be under way: it counts as outstanding until a later drain()
// or forget(). Threads: any, also inside the fault path, but never in a host callback (Helper does it there).
//
// Offsets and sizes in bytes. Streams and staging memory belong to the engine until their context ends; objects are
// borrowed for a call.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>

#include "shim/memory/object.h"

namespace hpe {

class Engine {
public:
    // What a transfer may wait for. Pinning memory waits for the device (so does a copy to or from memory that is not
    // pinned, hence the bounce buffers). Only Ordered transfers may pin: they know that the device waits for nothing.
    // During a host callback the device and the callback would wait for each other for ever (seen on an H200). Ordered:
    // after InFlight::wait(), inside the gate. Launching: on the way to a launch. Unordered: during a host callback.
    enum class Order { Ordered, Launching, Unordered };

    // Device to host; the bytes are in the view on return. [offset, offset + bytes) lies in the object.
    CUresult fetch(Object& object, std::size_t offset, std::size_t bytes, Order order) noexcept;

    // Host to device, enqueued. Whoever changes the view before the flush has ended must flush these bytes again.
    CUresult flush(Object& object, std::size_t offset, std::size_t bytes, Order order) noexcept;

    // The same of several objects' parts, each of which begins where the one before ends, on the device and in the
    // view. All objects are of one context. Bytes in whole pages.
    struct Part {
        Object* object;
        std::size_t offset, bytes;
    };
    CUresult fetch(std::span<const Part> neighbours, Order order) noexcept;
    CUresult flush(std::span<const Part> neighbours, Order order) noexcept;
    // Many small objects of the context are used together: makes what copies several at once. Outside the fault path.
    void expect_many(CUcontext context) noexcept;

    // Flushes the bytes of [offset, offset + bytes) that differ from `twin`, which has as many bytes. During a host
    // callback (Unordered).
    CUresult flush_changes(Object& object, std::size_t offset, std::size_t bytes, const std::byte* twin) noexcept;

    // Memory of the device that is no object's. What is read is there on return, and what is written is on the
    // device: all, or the bytes that differ from `before`. Also during a host callback.
    CUresult read(CUcontext context, CUdeviceptr device, std::byte* to, std::size_t bytes) noexcept;
    CUresult write(CUcontext context, CUdeviceptr device, const std::byte* from, std::size_t bytes) noexcept;
    CUresult write_changes(CUcontext context, CUdeviceptr device, std::byte* now, const std::byte* before,
                           std::size_t bytes) noexcept;

    // Makes the streams that transfers of this context will need; host callbacks may follow. Outside the fault path.
    void prepare(CUcontext context) noexcept;

    // Waits for every flush of every context. With nothing outstanding it costs one load.
    CUresult drain() noexcept;
    // Makes the program's stream wait for them instead. The flushes may still be under way on return: whoever fetches a
    // block that one of them may be sending calls drain() first. On an error drain() is the way that is left.
    CUresult make_wait(CUstream stream) noexcept;
    bool flushes_outstanding() const noexcept;

    // The context's streams died with it.
    void forget(CUcontext context) noexcept;
};

extern constinit Engine engine;

}  // namespace hpe
