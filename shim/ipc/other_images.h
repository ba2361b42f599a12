// SPDX-License-Identifier: MIT
// Images of other processes (host_images.h): waiting for their bytes, and mapping and pinning them here, so that the
// device of this process takes bytes from there. What was mapped is kept for the next message; in all at most 512 MiB.
//
// A wait ends by itself: the owner's device was given its work before the message was announced, and neither it nor
// anything in the owner waits for this process.
//
// Bytes; addresses in `process` are that process's. Threads: one at a time, by remote_read.cpp's lock; outside the
// fault path. Errors: negative errno of arrived_after().
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "shim/ipc/imports.h"

namespace hpe::ipc::other_images {

// Waits until more than `done` bytes are there, from found's first on. Returns how many are, at most found's.
// -EAGAIN: the entry was changed, and what was read since means nothing. -ESRCH: the process has ended. -EFAULT:
// nothing has come for long, so the owner's device has failed.
long arrived_after(pid_t process, const imports::Found& found, std::size_t done) noexcept;
// Whether the entry is still what it was when it was found: what was read until now is the message's.
bool same(const imports::Found& found) noexcept;

// Found's first byte in memory of this process that the context's device can read, nullptr: not now. Pins only what is
// seen for the second time, and only while no device work is under way, since pinning waits for that.
const std::byte* pinned(pid_t process, const imports::Found& found, CUcontext context) noexcept;

// What was pinned in the context is no more.
void forget(CUcontext context) noexcept;

}  // namespace hpe::ipc::other_images
