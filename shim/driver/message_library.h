// SPDX-License-Identifier: MIT
// A library that moves messages of device memory by copies in streams of its own: UCX with its CUDA module. Of such
// streams InFlight knows that they carry messages, so that one message does not wait for another.
//
// Addresses of the process. Threads: any; holds() takes the loader's lock only for code at the library's addresses.
// Errors: a stream that was made before the library was known, or while calls are recorded (HPE_TRACE), counts as the
// program's, which is slower.
#pragma once

#include <cstdint>

namespace hpe::message_library {

// Whether the library's file has such a name; nullptr: none.
bool is_named(const char* path) noexcept;
// Its code lies there. The last one counts.
void lies_at(std::uintptr_t begin, std::uintptr_t end) noexcept;
// Whether the address is in it. It may have been unloaded, and other code have its addresses.
bool holds(const void* code) noexcept;

}  // namespace hpe::message_library
