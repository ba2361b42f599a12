// SPDX-License-Identifier: MIT
// What belongs to a thread.
#include "toolchain/softgpu/driver/context/current.h"

#include <pthread.h>

namespace hpe::soft {
namespace {

// A pointer, so that nothing is destroyed behind the back of a call that comes late; the key frees it when the thread
// ends, and that does not happen to the main thread at exit.
thread_local ThreadState* state = nullptr;
pthread_key_t state_key;
void (*at_thread_end)(ThreadState& state) = nullptr;

}  // namespace

void make_thread_key(void (*at_end)(ThreadState&)) {
    at_thread_end = at_end;
    pthread_key_create(&state_key, [](void* p) {
        state = nullptr;
        if (life() != Life::Ready) return;
        const std::unique_ptr<ThreadState> ended(static_cast<ThreadState*>(p));
        at_thread_end(*ended);
    });
}

ThreadState& thread_state() {
    if (!state) {
        state = new ThreadState;
        pthread_setspecific(state_key, state);
    }
    return *state;
}

Context* current_or_null() {
    if (!state || state->stack.empty()) return nullptr;
    return state->stack.back();
}

Context& current() {
    Context* context = current_or_null();
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    context->check();
    return *context;
}

Context& current_or(Context& own) { return current_or_null() != nullptr ? current() : own; }

}  // namespace hpe::soft
