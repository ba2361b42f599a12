// SPDX-License-Identifier: MIT
// Events: marks in the order of work (CUDA Driver API, "Event Management").
//
// An event is the registry's, shared with its users and with graph nodes. Threads: any, but for what the order lock
// guards. Errors: exceptions of type Error (call.h).
#pragma once

#include <memory>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"

namespace hpe::soft {

class Capture;
struct GraphNode;
class SharedEvent;

class Event {
public:
    Event(Context& owner, unsigned event_flags) : context(owner), context_id(owner.id()), flags(event_flags) {}
    CUevent handle() const { return reinterpret_cast<CUevent>(const_cast<Event*>(this)); }
    bool timed() const { return !(flags & CU_EVENT_DISABLE_TIMING); }

    Context& context;
    const unsigned long long context_id;  // a primary context that came back has another one
    const unsigned flags;

    std::shared_ptr<SharedEvent> shared;  // of an interprocess event; then it says what is done
    bool opened = false;                  // another process made it

    // Guarded by the order lock.
    TaskRef mark;                         // null: never recorded
    std::shared_ptr<Capture> capture;     // when last recorded in a capturing stream
    std::vector<GraphNode*> captured_at;  // what a stream that waits for it then depends on
};

// Throws INVALID_HANDLE, CONTEXT_IS_DESTROYED, or the context's sticky error.
std::shared_ptr<Event> event_of(CUevent handle);

}  // namespace hpe::soft
