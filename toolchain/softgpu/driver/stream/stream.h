// SPDX-License-Identifier: MIT
// Streams: ordered queues of work, and how the default streams order themselves with the others (CUDA Driver API,
// "Stream Management" and "Stream synchronization behavior"). The driver functions: stream_calls.cpp.
//
// A stream is the registry's, a default stream its context's or its thread's; work in flight does not need it any more.
// Threads: any, but for what the order lock guards. Errors: exceptions of type Error (call.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/device/engine.h"

namespace hpe::soft {

class Capture;
struct GraphNode;

class Stream {
public:
    enum class Kind { Legacy, PerThread, Created };
    Stream(Context& owner, Kind stream_kind, unsigned stream_flags, int stream_priority);

    // Ordered with the legacy default stream?
    bool blocking() const { return kind != Kind::Legacy && !(flags & CU_STREAM_NON_BLOCKING); }
    CUstream handle() const;

    Context& context;
    const Kind kind;
    const unsigned flags;
    int priority;
    const unsigned long long id;

    // Guarded by the order lock.
    TaskRef tail;                // what was given to it last
    std::deque<TaskRef> queued;  // of a stream that holds only so many (HPE_SOFT_QUEUE)
    std::shared_ptr<Capture> capture;
    std::vector<GraphNode*> capture_tail;  // what the next captured node depends on
};

// A stream that a call names; keeps it alive while the call uses it. Throws INVALID_HANDLE, INVALID_CONTEXT.
std::shared_ptr<Stream> stream_of(CUstream handle);

// Waits until a stream that is full (HPE_SOFT_QUEUE) has room. Without the order lock.
void wait_for_room(Stream& stream);
// Appends work. With the order lock held.
TaskRef append(Stream& stream, std::function<void()> work, std::span<const TaskRef> also_after = {});
// What must be done before work that is appended now would start. With the order lock held.
std::vector<TaskRef> predecessors(const Stream& stream);
// All that must be done before the whole context is idle. With the order lock held.
std::vector<TaskRef> all_tails(const Context& context);
// Waits for all that is in the stream, or in the context; throws the context's sticky error.
void synchronize(Stream& stream);
void synchronize(Context& context);
// A place in the stream that the calling thread holds: what is appended later waits until it ends.
class Turn {
public:
    explicit Turn(Stream& stream);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    void wait() const;  // for all that came before; throws the context's sticky error

private:
    Stream& stream_;
    const TaskRef marker_ = std::make_shared<Task>();
    std::vector<TaskRef> before_;
};
// Takes a stream out of its context; its work goes on.
void retire(Stream& stream);

}  // namespace hpe::soft
