// SPDX-License-Identifier: MIT
// What every libc door is made of: the function behind it.
//
// Threads: any; async-signal-safe. Errors: as of the function itself.
#pragma once

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

}  // namespace hpe::doors
