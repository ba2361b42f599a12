// SPDX-License-Identifier: MIT
// Copies between processes that have not ended when MPI passes a message on as received: a window of messages is then
// copied without a wait for each. Both programs are told that a message is over when its copies have ended: the
// receiver counts them, the sender looks at the counters of all who read its memory (ReadingDevice in export_table.h).
// The receiver's device itself writes how many have ended, so that neither process waits for the other to act. A sender
// waits for all copies that have been begun, also for those of other messages: they are over soon.
//
// A sender that packs a message waits for its device before MPI hears of it. Two other ways were built and measured on
// two H100s, with 1 MiB in pieces of 8 bytes (31.8 us one way): that the receiver's process waits instead (31.2), and
// that its device does (32.0), in both of which the kernels wrote the numbers themselves (docs/hardware.md).
//
// Source: UCX completes its CUDA IPC copies by events of the receiver, and only then tells the sender; here MPI has
// told it already.
//
// Threads: see each; outside the fault path. Errors: a device that failed has ended its copies, as has a process that
// is gone.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "shim/driver/inflight.h"
#include "shim/ipc/export_table.h"

namespace hpe::ipc {

// Waits until the copies that others have begun of the table's owner's memory have ended: this process is the owner.
// Any thread; a few loads where nobody reads.
void wait_for_readers(ExportTable& table) noexcept;

// Where the device of a context of this process is counted in the tables of others. One thread at a time, by
// remote_read.cpp's lock.
namespace reading_devices {

struct Place {
    ExportTable* table;
    CUcontext context;
    ReadingDevice* reader;  // nullptr: there is no place
    CUdeviceptr ended;      // the number in it, for the device
};
// nullptr: it is not counted, at least not now, since pinning waits for device work.
const Place* place(ExportTable& table, CUcontext context) noexcept;
// The context has ended.
void forget(CUcontext context) noexcept;

}  // namespace reading_devices

// Copies of one message into this process, which its device makes in order.
class CopiesUnderWay {
public:
    bool any() const noexcept { return reader_ != nullptr; }
    // A copy was enqueued in the stream: so is its number. False: the copy is to be waited for.
    bool add(const reading_devices::Place& place, CUstream stream) noexcept;
    // What the copy counts as among the device's work.
    void counts_as(const InFlight::Mark& mark) noexcept { mark_ = mark; }
    // False: the device has failed.
    bool wait() noexcept;
    // The context, and with it the stream, has ended.
    void forget(CUcontext context) noexcept;

private:
    ReadingDevice* reader_ = nullptr;  // nullptr: nothing is under way
    std::uint32_t number_ = 0;
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
    InFlight::Mark mark_{};
};

}  // namespace hpe::ipc
