// SPDX-License-Identifier: MIT
// A copy in several pieces is several operations to the driver, and one to the program: what a stream is given is done
// in order, whichever thread gave it ("Streams", CUDA programming guide). While its pieces are enqueued, a copy claims
// its stream. What other threads have for that stream, or for one that is ordered with it, waits outside the room until
// the claim ends; but not what touches other memory, as far as that is known. Pieces of claims that touch different
// memory may mix.
//
// On an H200 the driver does the same: while an asynchronous copy between pageable memory and the device waits,
// launches of other threads into its stream wait, too, or into one that is ordered with it (the legacy stream and a
// blocking one), and behind a synchronous copy all launches of the context.
//
// Copies of several threads may leave no moment without a claim. So what gives way is in the way itself of copies that
// come later, outside the room and for a second at most: what it gives way to may be waiting for them.
//
// What is in the room already does not know of a claim: the claim waits for those that concern it, and not for ever,
// since they may be waiting for the device, and the device for this thread. A claim that is not held has no effect, and
// the copy is the driver's.
//
// Bytes. Streams by the names that all entry points read alike (named()), borrowed. Threads: any, outside the fault
// path; a claim within the room, as a launch with a slot. Errors: none; what cannot be told of a stream counts as if it
// was ordered with all others of its context.
#pragma once

#include <cuda.h>

#include "shim/base/room.h"
#include "shim/coherence/coherence.h"

namespace hpe {

// What a copy or memset touches, of the host's memory or the device's.
struct Touched {
    DeviceRange written, read;
};

namespace claims {

enum class Among : bool { Stream, Everything };

// Where work is ordered.
struct Order {
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    bool blocking = true;  // with the context's legacy stream
    Among among = Among::Stream;
};

// What a launch does after it has entered, if the room is claimed(). Leaves the room and comes back, until the work is
// in nobody's way. `touched`: nullptr if that is not known.
void give_way(CUstream stream, const Touched* touched) noexcept;

}  // namespace claims

class Claim {
public:
    // Waits for claims that are in the way, then for launches.
    Claim(CUstream stream, const Touched& touched, claims::Among among = claims::Among::Stream) noexcept;
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    bool held() const noexcept { return held_; }

    // Whether such work of the calling thread has to wait until it ends. `touched` as above.
    bool before(const claims::Order& order, const Touched* touched) const noexcept;

private:
    const claims::Order order_;
    const Touched touched_;
    const unsigned slot_;
    const void* const owner_;
    bool held_ = false;
};

}  // namespace hpe
