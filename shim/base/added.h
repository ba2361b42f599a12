// SPDX-License-Identifier: MIT
// Lists of those who may not throw.
//
// Threads: the caller's lock. Errors: nullptr where there is no memory for one element more.
#pragma once

#include <new>
#include <utility>
#include <vector>

namespace hpe {

// The element, at the end of the list.
template <class T>
T* added(std::vector<T>& list, T element) noexcept try {
    return &list.emplace_back(std::move(element));
} catch (const std::bad_alloc&) {
    return nullptr;
}

}  // namespace hpe
