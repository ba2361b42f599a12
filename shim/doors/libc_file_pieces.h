// SPDX-License-Identifier: MIT
// Long reads and writes of regular files on memory in one object, piece by piece at given offsets. What lies on the
// device meets the file in bounce buffers (copies/files.h); what is valid on the host is read into the view or written
// from there. Pieces that are in the page cache are read by helper threads: a tool that counts reads behind libhpe does
// not see these.
//
// Bytes; memory and file are the program's. Threads: each call's own. Errors: as of the call.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

#include "shim/coherence/lease.h"

namespace hpe::doors::pieces {

// What is longer may be made in pieces.
constexpr std::size_t kSmallest = lease::Bounce::kRecycled;

// The size of a regular file.
std::optional<off64_t> size_of(int file) noexcept;
// Whether the call is as good in pieces. Not a write that others must see whole or behind their own (O_APPEND), that
// waits for the disk each time (O_SYNC), or whose length is limited, with a signal (RLIMIT_FSIZE); nor one that the
// device has no bytes for.
bool may_read(int file, const void* at, std::size_t bytes, off64_t offset) noexcept;
bool may_write(int file, const void* at, std::size_t bytes, off64_t offset) noexcept;

ssize_t read(int file, void* at, std::size_t bytes, off64_t offset, const void* caller);
ssize_t write(int file, const void* at, std::size_t bytes, off64_t offset, const void* caller);

}  // namespace hpe::doors::pieces
