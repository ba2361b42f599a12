// SPDX-License-Identifier: MIT
// A library that moves messages of device memory by copies in streams of its own: UCX with its CUDA module. Of such
// streams InFlight knows that they carry messages, so that one message does not wait for another.
//
// Addresses of the process. Threads: any. Errors: a stream that was made before the library was known counts as the
// program's, which is slower.
#pragma once

#include <cstdint>

namespace hpe::message_library {

// Its code lies there. The last one counts.
void lies_at(std::uintptr_t begin, std::uintptr_t end) noexcept;
// Whether the address is in it.
bool holds(const void* code) noexcept;

}  // namespace hpe::message_library
