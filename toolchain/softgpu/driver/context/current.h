// SPDX-License-Identifier: MIT
// Which context is current in a thread, and what else a thread has set (CUDA Driver API, "Context Management", "Stream
// Management").
//
// Threads: ThreadState is its thread's, and ends with it. Errors: exceptions of type Error (call.h).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"

namespace hpe::soft {

// What one thread of the application has set.
struct ThreadState {
    std::vector<Context*> stack;
    std::map<unsigned long long, std::shared_ptr<Stream>> streams;  // per-thread default stream, by context id
    CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
ThreadState& thread_state();
// By cuInit: what is to be done for a thread that ends while the driver is in use.
void make_thread_key(void (*at_end)(ThreadState& state));

Context& current();  // throws INVALID_CONTEXT, CONTEXT_IS_DESTROYED, or the sticky error
Context* current_or_null();
Context& current_or(Context& own);  // `own` where none is current; throws as current() otherwise

}  // namespace hpe::soft
