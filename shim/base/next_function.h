// SPDX-License-Identifier: MIT
// Finds the function behind one of our doors without dlsym or dlvsym, since both are doors: the first definition in a
// library that was loaded after this one, out of the libraries' own symbol tables (loaded_library.h). It thus finds
// what RTLD_NEXT would.
//
// Sanitizers look symbols up before their own functions work, and theirs stand in front of libc's: so the loader's list
// is read directly (_r_debug of <link.h>, as debuggers do), and no function of libc is called.
//
// The pointer belongs to its library. Several versions of a symbol count as one. Threads: any, before any constructor
// too; takes no lock. For functions that libc defines: behind libc the list may change meanwhile. Errors: nullptr where
// there is none.
#pragma once

#include <atomic>

namespace hpe {

void* next_function(const char* name) noexcept;

// The function of this name in what stands behind libhpe: another tool's, or libc's. Found by its first call.
template <class Function>
class Next {
public:
    explicit constexpr Next(const char* name) noexcept : name_(name) {}
    template <class... A>
    auto operator()(A... arguments) {
        auto* const real = found_.load(std::memory_order_relaxed);
        if (real == nullptr) [[unlikely]] {
            return first(arguments...);
        }
        return real(arguments...);
    }
    // An older libc may lack it.
    bool exists() { return find() != nullptr; }

private:
    // Apart, so that a door keeps no arguments for it.
    template <class... A>
    [[gnu::noinline, gnu::cold]] auto first(A... arguments) {
        return find()(arguments...);
    }
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

}  // namespace hpe
