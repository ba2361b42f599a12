// SPDX-License-Identifier: MIT
// Device memory of other processes (export_table.h), opened in this one. What was opened is kept for the next message,
// and closed when its owner has freed it, as far as this process looks: at the next message that it reads.
//
// Bytes; addresses in `process` are that process's, device memory is its. Threads: one at a time, by remote_read.cpp's
// lock; outside the fault path. Errors: what cannot be opened is not found.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "shim/ipc/copies_under_way.h"
#include "shim/ipc/export_table.h"

namespace hpe::ipc::imports {

// Whether another process's table is open: its messages may have no bytes in host memory.
bool any() noexcept;

// An entry as it was at one moment. The addresses of the image and in its file are those of the byte at `at`; `memory`
// is the message's first.
struct Found : Readable {
    ExportEntry* entry = nullptr;  // nullptr: host memory like any other
    std::uint64_t version = 0;     // of the entry: all this counts only as long as it stays
    std::size_t bytes = 0;         // so many from `at` on
    std::size_t first = 0;         // which of the message's bytes `at` is
    CUdeviceptr device = 0;        // 0: cannot be opened
    CUcontext context = nullptr;   // where it was opened
};
// What lies behind `at` in the process: on the device, where that can be opened, else in an image. `context`: where the
// copy will be made; nullptr: where there is one already. `expected`: this process expects a message into device
// memory, so a table that is not open is looked for.
Found find(pid_t process, std::uintptr_t at, std::size_t bytes, CUcontext context, bool expected) noexcept;

// Memory that its owner has passed on (exports.h), in the context; 0: cannot be opened.
CUdeviceptr open(pid_t process, const SharedMemory& memory, CUcontext context) noexcept;

// Where the context's device is counted in the process's table, which is open; nullptr: it is not.
const reading_devices::Place* place(pid_t process, CUcontext context) noexcept;

// What was opened in the context went with it.
void forget(CUcontext context) noexcept;

}  // namespace hpe::ipc::imports
