// SPDX-License-Identifier: MIT
// What a stream or a graph node does: one description, run now by a stream or later by every launch of a graph.
// Plain descriptions: any thread, no errors of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "toolchain/softgpu/driver/abi.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {

class Context;
class Stream;
class KernelFunction;
struct Allocation;
struct ConditionalPlan;
class ConditionalValues;
struct GraphBlock;

struct KernelOp {
    std::shared_ptr<KernelFunction> function;
    Dim3 grid, block;
    std::uint32_t dynamic_shared = 0;
    bool cooperative = false;
    std::vector<std::byte> parameters;
    std::shared_ptr<ConditionalValues> conditionals;  // of the graph that it runs in
};

// Up to three dimensions of memory with linear layout; addresses are unified ones, pageable host memory included.
struct CopyEnd {
    std::uint64_t address = 0;
    std::size_t pitch = 0, slice = 0;  // bytes from row to row, from plane to plane
};
struct CopyOp {
    CopyEnd to, from;
    std::size_t width = 0, height = 1, depth = 1;  // width in bytes
    std::shared_ptr<std::byte[]> staged;           // owns the source when pageable memory was staged

    std::uint64_t bytes() const { return static_cast<std::uint64_t>(width) * height * depth; }
    // From the first to behind the last byte of one side.
    std::uint64_t span(const CopyEnd& end) const {
        return bytes() == 0 ? 0 : (depth - 1) * end.slice + (height - 1) * end.pitch + width;
    }
};

struct SetOp {
    std::uint64_t address = 0;
    std::size_t pitch = 0;
    std::uint32_t value = 0;
    unsigned element = 1;               // 1, 2 or 4 bytes
    std::size_t width = 0, height = 1;  // width in elements
};

struct HostOp {
    CUhostFn function = nullptr;
    void* data = nullptr;
};

// The older callback, told about errors of the context.
struct CallbackOp {
    CUstreamCallback function = nullptr;
    CUstream stream = nullptr;
    void* data = nullptr;
};

// One of cuStreamWriteValue, cuStreamWaitValue and the elements of cuStreamBatchMemOp.
struct ValueOp {
    std::uint64_t address = 0, value = 0;
    bool wide = false;   // 64 bits
    bool write = false;  // else wait
    unsigned wait = 0;   // CU_STREAM_WAIT_VALUE_GEQ, EQ, AND, NOR
};
struct ValueOps {
    std::vector<ValueOp> list;
};

// Stream-ordered free.
struct FreeOp {
    std::uint64_t address = 0;
    std::uint64_t id = 0;  // of the allocation
};

// Memory comes to a graph's addresses, or goes.
struct GraphMemoryOp {
    std::shared_ptr<GraphBlock> block;
    bool map = false;
    std::uint64_t offset = 0;  // in the device's memory
};

// A conditional node with its bodies, as they were when the graph was launched.
struct ConditionalOp {
    std::shared_ptr<const ConditionalPlan> plan;
};

using Operation = std::variant<std::monostate, KernelOp, CopyOp, SetOp, HostOp, CallbackOp, ValueOps, FreeOp,
                               GraphMemoryOp, ConditionalOp>;

// Puts an operation into a stream, or into the graph that captures the stream.
void submit(Stream& stream, Operation operation);

// Does it, on the calling thread; breaks the context when it fails.
void perform(Context& context, const Operation& operation);

// The parts, each next to its driver functions.
CUresult run(Context& context, const KernelOp& operation);  // launch.cpp
CUresult run(Context& context, const CopyOp& operation);    // copy.cpp
CUresult run(Context& context, const SetOp& operation);     // memset.cpp
CUresult run(Context& context, const HostOp& operation);    // host_function.cpp
CUresult run(Context& context, const CallbackOp& operation);
CUresult run(Context& context, const ValueOps& operation);       // memory_value.cpp
CUresult run(Context& context, const FreeOp& operation);         // pool.cpp
CUresult run(Context& context, const GraphMemoryOp& operation);  // graph_memory.cpp
CUresult run(Context& context, const ConditionalOp& operation);  // graph_launch.cpp

}  // namespace hpe::soft
