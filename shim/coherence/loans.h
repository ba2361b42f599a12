// SPDX-License-Identifier: MIT
// Blocks that are lent: they became valid on the host while device work around them is under way, in a host function or
// on a thread that is inside a call to the driver. A loan ends when the borrower does, and before that when the device
// is given the block, or the program has waited for the device: a borrower that comes back to it borrows it again.
//
// Of a block that was opened for writing the loan keeps a twin, and only the bytes that differ from it are sent: the
// device may be writing their neighbours (multiple writers, as in TreadMarks: Keleher et al., USENIX Winter 1994,
// section 3). Not where all device work but what waits for the borrower had ended: what is begun later ends the loan.
//
// A block has at most one loan, whoever uses it, and Block::lent() says whether it has. Bytes. Objects are borrowed,
// twins are the loan's own. Threads: any, also inside the fault path, with the program's signals blocked. Errors: false
// or nullptr, of no place or no memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/object.h"

namespace hpe {

struct Loan {
    Object* object = nullptr;
    std::uint32_t block = 0;
    std::byte* twin = nullptr;  // nullptr: opened for reading only, or device_idle
    std::size_t bytes = 0;      // of the twin
    std::uint64_t number = 0;   // in the order in which they were made
    bool device_idle = false;   // no kernel can write to the block's other bytes meanwhile

    // Takes the twin anew, of the first `count` bytes of the block as the view has them.
    bool keep_twin(std::size_t count) noexcept;
    void drop_twin() noexcept;
};

namespace loans {

constexpr std::size_t kMost = 64;

bool any() noexcept;

// The caller has locked the block, and may use the loan until it unlocks it.
Loan* make(Object& object, std::uint32_t block) noexcept;  // or the one there is; nullptr: there are kMost
Loan* of(const Object& object, std::uint32_t block) noexcept;
void end(Loan& loan) noexcept;

// Locks the block of the loan at a place below kMost. nullptr: there is none. The caller holds no block's lock.
Loan* lock(std::size_t place) noexcept;
// Where the oldest is.
std::size_t oldest() noexcept;

}  // namespace loans

}  // namespace hpe
