// SPDX-License-Identifier: MIT
// Where its code lies.
#include "shim/driver/message_library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace hpe::message_library {

namespace {

constinit std::atomic<std::uintptr_t> first{0}, last{0};

}  // namespace

bool is_named(const char* path) noexcept { return path != nullptr && std::strstr(path, "libuct_cuda") != nullptr; }

void lies_at(std::uintptr_t begin, std::uintptr_t end) noexcept {
    first.store(begin, std::memory_order_relaxed);
    last.store(end, std::memory_order_relaxed);
}

bool holds(const void* code) noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(code);
    if (at < first.load(std::memory_order_relaxed) || at >= last.load(std::memory_order_relaxed)) return false;
    Dl_info info{};
    return dladdr(code, &info) != 0 && is_named(info.dli_fname);
}

}  // namespace hpe::message_library
