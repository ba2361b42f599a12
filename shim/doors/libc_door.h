// SPDX-License-Identifier: MIT
// What every libc door is made of: the function behind it, and what becomes of a thread that is cancelled there.
//
// Cancellation unwinds through the door with the program's libgcc_s, which must meet no C++ cleanup of libhpe's own,
// statically linked C++ runtime: it would end the process. So these files are compiled without exceptions, and what a
// door holds while the function runs it holds by holding().
//
// Threads: any; async-signal-safe. Errors: as of the function itself.
#pragma once

#include <pthread.h>

#include <atomic>

#include "shim/base/next_function.h"
#include "shim/doors/exported.h"

namespace hpe::doors {

// The function of this name in what stands behind libhpe: another tool's, or libc's.
template <class Function>
class Next {
public:
    explicit constexpr Next(const char* name) noexcept : name_(name) {}
    template <class... A>
    auto operator()(A... arguments) {
        return find()(arguments...);
    }
    // An older libc may lack it.
    bool exists() { return find() != nullptr; }

private:
    Function* find() {
        auto* real = found_.load(std::memory_order_relaxed);
        if (real == nullptr) [[unlikely]] {
            real = reinterpret_cast<Function*>(next_function(name_));
            found_.store(real, std::memory_order_relaxed);
        }
        return real;
    }

    const char* const name_;
    std::atomic<Function*> found_{nullptr};
};

// Calls `call`, a cancellation point perhaps; should the thread end there, what is held is destroyed.
template <class Held, class Call>
auto holding(Held& held, Call&& call) {
    decltype(call()) result{};
    pthread_cleanup_push([](void* all) { static_cast<Held*>(all)->~Held(); }, &held);
    result = call();
    pthread_cleanup_pop(0);
    return result;
}

}  // namespace hpe::doors
