// SPDX-License-Identifier: MIT
// Borrowed blocks: they became valid on the host while device work is under way, for a host function or for a thread
// that is inside a call to the driver. A loan ends when the host function or the call returns; earlier if a launch, a
// copy that writes, a free or another thread's access takes the block, another host function begins, its place is
// needed, or the program has waited for the device. A borrower that accesses the block again borrows it anew.
//
// Of a block that is borrowed for writing the loan keeps a twin, a copy of the device's bytes. Only the bytes that
// differ from the twin are flushed, since a kernel may be writing to the others (multiple writers, as in TreadMarks:
// Keleher et al., USENIX Winter 1994, section 3). No twin is needed if all device work had ended but that which waits
// for the borrower: work that begins later ends the loan.
//
// A block has at most one loan, however many threads use it; Block::borrowed() tells whether it has one. Bytes. Objects
// are borrowed for a call, twins are the loan's own. Threads: any, also inside the fault path, with the program's
// signals blocked. Errors: false or nullptr, for lack of a place or of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/memory/object.h"

namespace hpe {

struct Loan {
    Object* object = nullptr;
    std::uint32_t block = 0;
    std::byte* twin = nullptr;  // nullptr: opened for reading only, or device_idle
    std::size_t bytes = 0;      // of the twin
    std::uint64_t number = 0;   // of all loans, in the order in which they began
    bool device_idle = false;   // no kernel can write to the block's other bytes meanwhile

    // Makes a new twin of the view's first `count` bytes of the block.
    bool keep_twin(std::size_t count) noexcept;
    void drop_twin() noexcept;
};

namespace loans {

constexpr std::size_t kMost = 64;

bool any() noexcept;

// The caller has locked the block, and may use the loan until it unlocks the block.
Loan* make(Object& object, std::uint32_t block) noexcept;  // returns the block's loan if it has one; nullptr: no place
Loan* of(const Object& object, std::uint32_t block) noexcept;
void end(Loan& loan) noexcept;

// Locks the block of the loan at a place below kMost. nullptr: the place is free. The caller holds no block's lock.
Loan* lock(std::size_t place) noexcept;
// The place of the oldest loan.
std::size_t oldest() noexcept;

}  // namespace loans

}  // namespace hpe
