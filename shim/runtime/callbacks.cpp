// SPDX-License-Identifier: MIT
// Wrapping of host functions.
#include "shim/runtime/callbacks.h"

#include <map>
#include <mutex>
#include <utility>

#include "shim/base/thread.h"
#include "shim/runtime/coherence.h"

namespace hpe::callbacks {

struct HostCall {
    CUhostFn function;
    void* data;
    bool repeats;
};
struct StreamCall {
    CUstreamCallback function;
    void* data;
};

namespace {

constinit std::mutex mutex;
std::map<std::pair<CUhostFn, void*>, HostCall*>& repeated() {
    static auto* calls = new std::map<std::pair<CUhostFn, void*>, HostCall*>;
    return *calls;
}

class InCallback {
public:
    InCallback() noexcept {
        ++this_thread.in_callback;
        // The driver may have made this thread while everything was blocked.
        sigset_t faults;
        sigemptyset(&faults);
        sigaddset(&faults, SIGSEGV);
        SignalsBlocked::real_sigmask(SIG_UNBLOCK, &faults, nullptr);
    }
    ~InCallback() {
        // The stream goes on when we return: what was written must be there.
        coherence().end_callback();
        --this_thread.in_callback;
    }
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
};

}  // namespace

HostCall* wrap(CUhostFn function, void* data, bool repeats) {
    if (!repeats) return new HostCall{function, data, false};
    std::scoped_lock lock(mutex);
    auto& slot = repeated()[{function, data}];
    if (slot == nullptr) slot = new HostCall{function, data, true};
    return slot;
}

StreamCall* wrap(CUstreamCallback function, void* data) { return new StreamCall{function, data}; }

void discard(HostCall* call) {
    if (!call->repeats) delete call;
}
void discard(StreamCall* call) { delete call; }

void unwrap(CUhostFn& function, void*& data) {
    if (function != run_host_function) return;
    const auto* call = static_cast<const HostCall*>(data);
    function = call->function;
    data = call->data;
}

void CUDA_CB run_host_function(void* argument) {
    auto* call = static_cast<HostCall*>(argument);
    const HostCall copy = *call;
    if (!copy.repeats) delete call;
    InCallback running;
    copy.function(copy.data);
}

void CUDA_CB run_stream_callback(CUstream stream, CUresult status, void* argument) {
    auto* call = static_cast<StreamCall*>(argument);
    const StreamCall copy = *call;
    delete call;
    InCallback running;
    copy.function(stream, status, copy.data);
}

}  // namespace hpe::callbacks
