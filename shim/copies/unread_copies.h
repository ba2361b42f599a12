// SPDX-License-Identifier: MIT
// Which copies to the host are watched for whether the program looks at what they brought (observe/unread.h closes
// the pages), with HPE_UNREAD=on and call stacks in the report.
//
// Watched are copies of 64 KiB and more to memory that is not pinned and that malloc has mapped for itself
// (memory/malloc_chunk.h), that are done when the call returns; of these the pages that lie wholly in the destination.
// Never where the calling thread's stack lies in that memory.
//
// Nothing is watched where a trap might do harm: where a device reads and writes such memory by itself (pageable memory
// access), where the process has an MPI, whose other ranks read it, where process_vm_readv is forbidden, and where a
// thread has SIGSEGV blocked in the kernel, as threads may that were made before the first allocation. HPE_LOG=info
// says the reason.
//
// Bytes. Threads: any, outside the fault path. Errors: none; what cannot be watched is not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/observe/call_stacks.h"

namespace hpe::unread_copies {

// Once, before anything else.
void configure(bool on) noexcept;

// A copy to such memory was made by the call that `event` is, in so many ticks. The pages are closed when the event has
// ended: nothing of libhpe's looks at them then.
void copied(call_stacks::Event& event, const void* to, std::size_t bytes, std::uint64_t ticks) noexcept;

}  // namespace hpe::unread_copies
