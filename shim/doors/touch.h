// SPDX-License-Identifier: MIT
// First accesses to a program's own memory that helper threads will copy. Should it be missing (guarded pages, a mapped
// file that was cut short), the program's handler of SIGSEGV or SIGBUS gets the signal on the thread that called, and
// with nothing of libhpe's under way: the handler may provide the memory, or jump out of the call. A program without
// such a handler ends by the same signal on a helper thread, and is spared the accesses: 0.9 of the 7 ms that 256 MiB
// take to an H200.
//
// To have the kernel look, by helper threads (madvise, MADV_POPULATE_READ), takes 7 ms.
//
// Bytes; at least one. Threads: any, outside the fault path. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/memory/object.h"
#include "shim/process/signals.h"

namespace hpe::doors {

template <class Touch>
void touch_pages(const void* at, std::size_t bytes, Touch&& touch) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    // A stack grows down to the first byte; Linux before 4.20 grows it for its own thread only.
    const auto end = begin + (signals::program_handles_faults() ? bytes : 1);
    for (auto in_page = begin; in_page < end; in_page = in_page / kPage * kPage + kPage) touch(in_page);
}

inline void touch_to_read(const void* at, std::size_t bytes) noexcept {
    touch_pages(at, bytes, [](std::uintptr_t in_page) {
        static_cast<void>(*reinterpret_cast<const volatile unsigned char*>(in_page));
    });
}

// Bytes that the call itself is to write, so that no other thread may write there. An atomic access to each page would
// take 3 ms of 256 MiB.
inline void touch_to_write(void* at, std::size_t bytes) noexcept {
    touch_pages(at, bytes, [](std::uintptr_t in_page) {
        auto* const byte = reinterpret_cast<volatile unsigned char*>(in_page);
        *byte = *byte;
    });
}

}  // namespace hpe::doors
