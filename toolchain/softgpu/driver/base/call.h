// SPDX-License-Identifier: MIT
// The one gate that every driver call passes: is the driver usable here and now, is a fault to be injected, and which
// default stream does this call mean (CUDA Driver API, "Initialization" and "Stream synchronization behavior"). Inside,
// errors travel as exceptions of type Error and leave as CUresult.
//
// Threads: any thread of the application; a Call is the calling thread's own, as long as the call. Errors: the gate
// itself throws none.
#pragma once

#include <new>

#include "api.h"

namespace hpe::soft {

// What a driver call ends with when it cannot do what it was asked.
struct Error {
    CUresult code;
};
[[noreturn]] inline void fail(CUresult code) { throw Error{code}; }
inline void require(bool condition, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    if (!condition) fail(otherwise);
}

// One line on stderr, prefix "hpe-soft:".
void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));

class Call {
public:
    Call(Function function, bool per_thread_default_stream) noexcept;
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    CUresult refusal() const { return refusal_; }
    // Which stream the handle 0 means in the call that this thread is in.
    static bool per_thread_default_stream() noexcept;

private:
    CUresult refusal_;
    bool outer_per_thread_;
};

// Marks the calling thread as running an application callback, where CUDA calls are refused.
class InCallback {
public:
    InCallback() noexcept;
    ~InCallback();
    InCallback(const InCallback&) = delete;
    InCallback& operator=(const InCallback&) = delete;
};

enum class Life { Unborn, Ready, Forked, TornDown };
void set_life(Life life) noexcept;
Life life() noexcept;

CUresult not_supported(const char* what) noexcept;

template <class Body>
CUresult guarded(Function function, bool per_thread, Body body) noexcept {
    Call call(function, per_thread);
    if (call.refusal() != CUDA_SUCCESS) return call.refusal();
    try {
        return body();
    } catch (const Error& error) {
        return error.code;
    } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
        return CUDA_ERROR_UNKNOWN;
    }
}

}  // namespace hpe::soft
