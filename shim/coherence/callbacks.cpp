// SPDX-License-Identifier: MIT
// Wrapping of host functions.
#include "shim/coherence/callbacks.h"

#include <cstdint>
#include <map>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"

namespace hpe::callbacks {

struct HostCall {
    CUhostFn function;
    void* data;
    bool repeats;
    const void* stream;
};
struct StreamCall {
    CUstreamCallback function;
    void* data;
    const void* stream;
};

namespace {

constinit Mutex mutex;
std::map<std::pair<CUhostFn, void*>, HostCall*>& repeated() HPE_REQUIRES(mutex) {
    static NeverDestroyed<std::map<std::pair<CUhostFn, void*>, HostCall*>> calls;
    return *calls;
}

class InCallback {
public:
    explicit InCallback(const void* stream) noexcept {
        ++this_thread.in_callback;
        this_thread.callback_stream = stream;
        // The driver may have made this thread while everything was blocked.
        kernel::sigprocmask(SIG_UNBLOCK, SIGSEGV);
        // The stream's work before this function may have changed borrowed blocks, whose borrowers have not waited.
        coherence().end_loans();
        began_ = coherence().loans_sent();
    }
    ~InCallback() {
        // The stream goes on when we return: what the function wrote must be on the device.
        coherence().end_callback(began_);
        this_thread.callback_stream = nullptr;
        --this_thread.in_callback;
    }
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;

private:
    std::uint64_t began_;
};

}  // namespace

HostCall* wrap(CUhostFn function, void* data, bool repeats, const void* stream) {
    if (!repeats) return new HostCall{function, data, false, stream};
    const Locked lock(mutex);
    auto& slot = repeated()[{function, data}];
    if (slot == nullptr) slot = new HostCall{function, data, true, nullptr};
    return slot;
}

StreamCall* wrap(CUstreamCallback function, void* data, const void* stream) {
    return new StreamCall{function, data, stream};
}

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
    const InCallback running(copy.stream);
    copy.function(copy.data);
}

void CUDA_CB run_stream_callback(CUstream stream, CUresult status, void* argument) {
    auto* call = static_cast<StreamCall*>(argument);
    const StreamCall copy = *call;
    delete call;
    const InCallback running(copy.stream);
    copy.function(stream, status, copy.data);
}

}  // namespace hpe::callbacks
