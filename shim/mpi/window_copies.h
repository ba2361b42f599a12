// SPDX-License-Identifier: MIT
// Windows over objects. Other ranks read and write a window at any time, and cannot be made to trap: so host memory,
// the public copy, is the window that MPI knows, and the object is the private copy of MPI's separate memory model,
// which MPI_WIN_MODEL names. The two meet in the calls of this rank that synchronise the window:
//   publish: bytes that this rank changed go into the public copy, before MPI_Win_fence, _post, _unlock, _unlock_all
//   and _sync: "an update of a location in a private window copy becomes visible in the public window copy at latest
//   when an ensuing call to" one of these "is executed on that window by the window owner" (rule 5).
//   bring: bytes that others changed are stored into the object, after MPI_Win_fence, _wait, _test that says yes,
//   _lock, _lock_all and _sync: "an update by a put or accumulate call to a public window copy becomes visible in the
//   private copy in process memory at latest when an ensuing call to" one of these is made (rule 6). Also after
//   MPI_Win_unlock and _unlock_all, for programs that put into their own window and do not ask for the model, and after
//   MPI_Win_free, before which all ranks have ended their calls.
// What has changed is found by comparing with a twin, what both copies had when they met last. Bytes that have not are
// never written, so that a call of another rank under way to other bytes of the window loses nothing. Where both sides
// changed a byte the program has an error (12.7), and one of the two remains.
//
// Every such call looks at the whole window: right, not fast.
//
// What this rank's own gets bring, if all of it lies in the window, MPI writes to the public copy: other ranks may get
// it in the very epoch that begins where this one ends (a fence). The range is published before, and brought when it
// has come.
//
// Source: MPI 4.1, sections 12.4 (memory models) and 12.7 (semantics and correctness); twins: Carter, Bennett,
// Zwaenepoel, "Implementation and performance of Munin", SOSP 1991.
//
// Bytes; the window is the program's. Threads: any. Errors: what the device cannot give or take is a line, and false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shim/base/address.h"
#include "shim/base/mutex.h"
#include "shim/mpi/host_memory.h"
#include "shim/mpi/short_list.h"

namespace hpe::mpi {

class WindowCopy {
public:
    WindowCopy(void* base, std::size_t bytes, const void* caller) noexcept;
    // There is memory, and the device has given its bytes.
    bool ok() const noexcept { return ok_; }
    void* base() const noexcept { return base_; }
    // What MPI is to take for the window.
    std::byte* memory() const noexcept { return public_.at(); }
    bool holds(std::uintptr_t begin, std::size_t bytes) const noexcept {
        const auto first = begin - address(base_);
        return begin >= address(base_) && first <= bytes_ && bytes <= bytes_ - first;
    }
    bool publish() noexcept { return publish(address(base_), bytes_); }
    bool bring() noexcept { return bring(address(base_), bytes_); }
    // The same of a range that it holds.
    bool publish(std::uintptr_t begin, std::size_t bytes) noexcept;
    bool bring(std::uintptr_t begin, std::size_t bytes) noexcept;

    std::uintptr_t handle = 0;   // MPI's
    WindowCopy* next = nullptr;  // ShortList's

private:
    std::byte* const base_;
    const std::size_t bytes_;
    const void* const caller_;
    const HostMemory public_, twin_;
    Mutex mutex_;  // two threads may synchronise one window
    bool ok_ = false;
};

}  // namespace hpe::mpi
