// SPDX-License-Identifier: MIT
// Shared memory that a process has made (memfd) and others of the same user find by its name, in /proc. It leaves
// nothing behind.
//
// The file belongs to the caller. Threads: any. Errors: -1.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace hpe::ipc {

// The process's file of that name, opened to read and write.
int memory_file_of(pid_t process, std::string_view name) noexcept;

}  // namespace hpe::ipc
