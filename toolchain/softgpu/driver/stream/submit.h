// SPDX-License-Identifier: MIT
// The way of all asynchronous calls that do work: into a stream's queue, or into the graph that captures the stream
// (CUDA Driver API, "Stream Management").
//
// The operation is the queue's or the graph's. Threads: any; it takes the order lock. Errors: exceptions of type Error
// (call.h).
#pragma once

#include <utility>

#include "toolchain/softgpu/driver/stream/operation.h"

namespace hpe::soft {

class Stream;

void submit(Stream& stream, OperationRef operation);

template <class Op>
void submit(Stream& stream, Op op) {
    submit(stream, make_operation(std::move(op)));
}

}  // namespace hpe::soft
