// SPDX-License-Identifier: MIT
// Reserving a stream for a copy in several pieces. To the program such a copy is one operation, and a stream's
// operations are done in order, whichever thread gave them ("Streams", CUDA programming guide); to the driver it is
// several. While its pieces are enqueued the copy reserves its stream: other threads' work for that stream, or for one
// that is ordered with it, waits outside the gate until the reservation ends. Work that is known to touch other memory
// does not wait, and pieces of copies that touch different memory may mix.
//
// On an H200 the driver does the same: while an asynchronous copy between pageable memory and the device waits,
// launches of other threads into its stream wait, too, or into one that is ordered with it (the legacy stream and a
// blocking one), and behind a synchronous copy all launches of the context.
//
// Copies of several threads may leave no moment without a reservation. So copies that come later wait for work that
// waits for a reservation already: outside the gate, and for a second at most, since a reservation's copy may itself be
// waiting for them.
//
// Work that was inside the gate before does not see a reservation. The reservation waits for that work where it is
// ordered with its stream, but only for some milliseconds: the work may be waiting for the device, and the device for
// this thread. If it gives up it is not held: it has no effect, and the copy is the driver's.
//
// Bytes. Streams by the names that all entry points read alike (named()), borrowed. Threads: any, outside the fault
// path; a reservation is made within the gate, as a launch with a slot. Errors: none; a stream of which the driver does
// not tell enough counts as ordered with all others of its context.
#pragma once

#include <cuda.h>

#include "shim/base/launch_gate.h"
#include "shim/coherence/coherence.h"

namespace hpe {

// What a copy or memset touches, of the host's memory or the device's.
struct Touched {
    DeviceRange written, read;
};

namespace reservations {

// What work is ordered with.
struct Order {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    bool blocking = true;  // with the context's legacy stream
};

// Called by a launch that has entered, if the gate is reserved(). Leaves the gate and enters it again until no
// reservation delays the work. `touched`: nullptr if that is not known.
void give_way(CUstream stream, const Touched* touched) noexcept;

}  // namespace reservations

class StreamReservation {
public:
    // Waits for the reservations that delay it, then for launches.
    StreamReservation(CUstream stream, const Touched& touched) noexcept;
    ~StreamReservation();
    StreamReservation(const StreamReservation&) = delete;
    StreamReservation& operator=(const StreamReservation&) = delete;
    bool held() const noexcept { return held_; }

    // Whether such work of the calling thread has to wait until the reservation ends. `touched` as above.
    bool delays(const reservations::Order& order, const Touched* touched) const noexcept;

private:
    const reservations::Order order_;
    const Touched touched_;
    const unsigned slot_;
    const void* const owner_;
    bool held_ = false;
};

}  // namespace hpe
