// SPDX-License-Identifier: MIT
// errno belongs to the program: a call that succeeds for it must not change it, whatever we asked the system meanwhile.
//
// Threads: any; async-signal-safe.
#pragma once

#include <cerrno>

namespace hpe {

class ErrnoKept {
public:
    ErrnoKept() noexcept = default;
    ~ErrnoKept() { errno = saved_; }
    ErrnoKept(const ErrnoKept&) = delete;
    ErrnoKept& operator=(const ErrnoKept&) = delete;

private:
    const int saved_ = errno;
};

}  // namespace hpe
