// SPDX-License-Identifier: MIT
// Large reads of another process's ordinary memory (process_vm_readv), by which MPI libraries move messages between
// processes of one host: the kernel copies with the calling thread alone, at 5 GB/s on an H100's host, so the helper
// threads (transfer/copiers.h) each read a part of it.
//
// The result is that of the one call: the number of bytes that came, from the first on without a gap, and the error of
// the first byte that cannot be read. Memory behind that byte may have been written, too, where the one call would have
// left it as it was.
//
// The first reads of a process are its own call: helpers are made once as much was read as their start costs, by
// another thread, and only in a process that has objects and more than one processor.
//
// Bytes; the memory and the lists are the caller's. Threads: any; async-signal-safe. Errors: as process_vm_readv.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>

namespace hpe::ipc {

// Of one process_vm_readv (MAX_RW_COUNT).
constexpr std::size_t kMostBytes = 0x7ffff000;

// False: no read of this process is split. A few loads.
bool may_split_reads() noexcept;
// A read as by process_vm_readv without flags; nothing: it is the caller's to make. The lists can be read.
std::optional<ssize_t> split_read(pid_t process, std::span<const iovec> own, std::span<const iovec> other) noexcept;

// The same for one stretch, with helpers where that is worth it. Returns how many bytes came; with fewer, `error` is
// why.
std::size_t read_stretch(pid_t process, void* to, const void* from, std::size_t bytes, int& error) noexcept;

}  // namespace hpe::ipc
