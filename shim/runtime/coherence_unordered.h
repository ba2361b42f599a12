// SPDX-License-Identifier: MIT
// Private to Coherence: what faults inside host callbacks and inside the driver need.
//
// Units: bytes. Threads: the lists belong to one thread each; with_driver() from any, also inside the fault path. Twins
// are mapped memory that their entry owns. Errors: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/coherence.h"
#include "shim/runtime/helper.h"

namespace hpe {

// A block that became valid while device work around it is under way: in a host callback, or on a thread that is inside
// a call to the driver. It goes back when that ends (end_unordered). Of a written block only the bytes that changed
// since `twin` was taken are sent: the device may be writing its neighbours.
struct Coherence::Unordered {
    Object* object = nullptr;
    std::uint32_t serial = 0;
    std::uint32_t block = 0;
    std::byte* twin = nullptr;  // nullptr: only read
    std::size_t bytes = 0;      // of the block when it was touched
};

// Runs the work here, or on the helper where driver calls are not allowed or the stack is too small for them.
template <class Work>
void with_driver(bool elsewhere, Work&& work) noexcept {
    if (elsewhere && helper::running()) {
        helper::run(work);
    } else {
        work();
    }
}

}  // namespace hpe
