// SPDX-License-Identifier: MIT
// Copies between processes that have not ended when MPI passes a message on as received: a window of messages is then
// copied without a wait for each. Both programs are told that a message is over when its copies have ended: the
// receiver counts them, the sender looks at the counters of all who read its memory (ReadingDevice in export_table.h).
// The receiver's device itself writes how many have ended, so that neither process waits for the other to act. A sender
// waits for all copies that have been begun, also for those of other messages: they are over soon.
//
// A device that packs what others will read counts likewise, in its own process's table: MPI is given the message while
// it packs, and a reader waits for it.
//
// Source: UCX completes its CUDA IPC copies by events of the receiver, and only then tells the sender; here MPI has
// told it already.
//
// Threads: see each; outside the fault path. Errors: a device that failed has ended its copies, as has a process that
// is gone.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "shim/copies/own_work.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/export_table.h"

namespace hpe::ipc {

// Waits until the copies that others have begun of the table's owner's memory have ended: this process is the owner.
// Any thread; a few loads where nobody reads.
void wait_for_readers(ExportTable& table) noexcept;
// Waits until the owner's devices have packed what they began to pack. Any thread, outside the gate. False: the owner is
// gone, or nothing came for 20 seconds.
bool wait_for_packing(ExportTable& table, pid_t owner) noexcept;

// Where the device of a context of this process is counted in a table. Any thread.
namespace reading_devices {

struct Place {
    ExportTable* table;
    CUcontext context;
    ReadingDevice* reader;  // nullptr: there is no place
    CUdeviceptr ended;      // the number in it, for the device
};
// Nothing: it is not counted, at least not now, since pinning waits for device work.
std::optional<Place> place(ExportTable& table, CUcontext context) noexcept;
// The context has ended.
void forget(CUcontext context) noexcept;

}  // namespace reading_devices

// Copies of one message into this process, or its packing, which the device makes in order. One thread at a time.
class CopiesUnderWay {
public:
    bool any() const noexcept { return reader_ != nullptr; }
    // Begins what enqueue() enqueues in the work's stream; where its end cannot be counted, waits for it.
    template <class Enqueue>
    bool begin(const reading_devices::Place& place, OwnWork& work, DeviceRange reads, DeviceRange writes,
               Enqueue&& enqueue) noexcept {
        InFlight::Mark mark{};
        bool under_way = false;
        const auto result = work.begin(
            reads, writes,
            [&] {
                const auto made = enqueue();
                under_way = made == CUDA_SUCCESS && add(place, work.stream());
                return made == CUDA_SUCCESS && !under_way ? driver.cuStreamSynchronize(work.stream()) : made;
            },
            mark);
        if (under_way) {
            mark_ = mark;
        } else {
            in_flight.finished(mark);
        }
        return result == CUDA_SUCCESS;
    }
    // False: the device has failed.
    bool wait() noexcept;
    // The context, and with it the stream, has ended.
    void forget(CUcontext context) noexcept;

private:
    // What was enqueued in the stream is followed by its number. False: it is to be waited for.
    bool add(const reading_devices::Place& place, CUstream stream) noexcept;

    ReadingDevice* reader_ = nullptr;  // nullptr: nothing is under way
    std::uint32_t number_ = 0;
    CUcontext context_ = nullptr;
    CUstream stream_ = nullptr;
    InFlight::Mark mark_{};
};

}  // namespace hpe::ipc
