// SPDX-License-Identifier: MIT
// A function's static variable that is never destroyed: calls of the program, messages and faults may come after the
// process's own exit handlers. It lies in the library's own memory, so that its first use cannot fail.
//
// Threads: as those of T; C++ makes the first use safe. Errors: those of T's constructor.
#pragma once

#include <cstddef>
#include <new>

namespace hpe {

template <class T>
class NeverDestroyed {
public:
    NeverDestroyed() noexcept(noexcept(T())) { ::new (memory_) T(); }
    NeverDestroyed(const NeverDestroyed&) = delete;
    NeverDestroyed& operator=(const NeverDestroyed&) = delete;

    T& operator*() noexcept { return *std::launder(reinterpret_cast<T*>(memory_)); }

private:
    alignas(T) std::byte memory_[sizeof(T)];
};

}  // namespace hpe
