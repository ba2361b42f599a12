// SPDX-License-Identifier: MIT
// Writing without the signals that may end a process: to a pipe that nobody reads (SIGPIPE), and beyond the size that
// files of the process may have (SIGXFSZ). A program that writes nothing there does not expect them.
//
// Threads: any; async-signal-safe. Errors: as of writev(2), EPIPE and EFBIG among them.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

namespace hpe {

ssize_t quiet_writev(int fd, const iovec* parts, int count) noexcept;

}  // namespace hpe
