// SPDX-License-Identifier: MIT
// Memory that cuMemFreeAsync was called for (CUDA Driver API, "Stream Ordered Memory Allocator"): until the stream gets
// there, it belongs to nobody.
//
// Allocations are told apart by their ids. Threads: any. Errors: false.
#pragma once

#include <cstdint>

namespace hpe::soft {

struct Allocation;

bool begin_free(const Allocation& allocation);  // false: begun before
void finish_free(std::uint64_t id);
bool free_is_pending(const Allocation& allocation);
bool any_free_is_pending();

}  // namespace hpe::soft
