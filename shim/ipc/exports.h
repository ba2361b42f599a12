// SPDX-License-Identifier: MIT
// Device memory of this process that other processes may read while a message is under way (export_table.h). An object
// stays shared with the CPU meanwhile, since nobody else writes to it.
//
// A message leaves from host memory that is filled and is exported: its receiver may take the bytes from the device
// instead. A receiver that was seen to do that is known: the next message from the same object may be given by its
// device address alone, for only that receiver will read it. What is not known is not tried.
//
// Peers are numbers by which the caller tells receivers apart. Bytes. Threads: any, outside the fault path and the
// gate. Errors: what cannot be exported is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "protocols/object.h"
#include "shim/ipc/export_table.h"

namespace hpe::ipc {

// Once, before anything else (HPE_MPI_IPC).
void configure(bool on) noexcept;
bool on() noexcept;

// Smaller messages are sent from host memory.
constexpr std::size_t kSmallest = std::size_t{64} << 10;

// A message to a peer, whose bytes lie at `host`, and at `device` in the object; from its beginning to its end.
class Export {
public:
    Export(const Object& object, std::uintptr_t device, const std::byte* host, std::size_t bytes, int peer) noexcept;
    ~Export();
    Export(const Export&) = delete;
    Export& operator=(const Export&) = delete;
    // The same bytes are sent once more.
    void again() noexcept;
    // The message has arrived. If all of it came from the device, the peer is known from now on.
    void arrived() noexcept;

private:
    ExportEntry* entry_ = nullptr;
    const std::uintptr_t device_;
    const std::size_t bytes_;
    const int peer_;
};

// Whether a message from the object's own address will be read by its receiver from the device.
bool reads_from_device(const Object& object, int peer) noexcept;

// The object's memory from `device` on, for another process to open while both know that it is not freed: its owner
// passes this on. Nothing: the driver exports no such memory.
std::optional<SharedMemory> shared(const Object& object, std::uintptr_t device) noexcept;

// The object is about to be freed, or its context to end: readers close what they opened.
void ended(const Object& object) noexcept;
void exports_forget(CUcontext context) noexcept;

}  // namespace hpe::ipc
