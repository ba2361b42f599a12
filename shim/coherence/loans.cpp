// SPDX-License-Identifier: MIT
// A table of loans. Its lock is taken while blocks are locked; under it a block's lock is only tried.
#include "shim/coherence/loans.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/base/waiting.h"
#include "shim/memory/mappings.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

bool Loan::keep_twin(std::size_t count) noexcept {
    drop_twin();
    void* memory = MAP_FAILED;
    const bool mapped = mappings::with_reserve([&] {
        memory = kernel::mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        return memory != MAP_FAILED;
    });
    if (!mapped) return false;
    twin = static_cast<std::byte*>(memory);
    bytes = count;
    std::memcpy(twin, object->view + object->offset_of(block), count);
    return true;
}

void Loan::drop_twin() noexcept {
    if (twin != nullptr) kernel::munmap(twin, bytes);
    twin = nullptr;
}

namespace loans {

namespace {

constinit SpinLock table_lock;
constinit std::array<Loan, kMost> table HPE_GUARDED_BY(table_lock){};  // without an object: a place that is free
constinit std::atomic<unsigned> made{0};
constinit std::uint64_t last_number HPE_GUARDED_BY(table_lock) = 0;

Loan* find(const Object* object, std::uint32_t block) noexcept HPE_REQUIRES(table_lock) {
    for (Loan& loan : table) {
        if (loan.object == object && (object == nullptr || loan.block == block)) return &loan;
    }
    return nullptr;
}

}  // namespace

bool any() noexcept { return made.load(std::memory_order_acquire) != 0; }

Loan* make(Object& object, std::uint32_t block) noexcept {
    const Locked lock(table_lock);
    if (Loan* known = find(&object, block)) return known;
    Loan* loan = find(nullptr, 0);
    if (loan == nullptr) return nullptr;
    *loan = {&object, block, nullptr, 0, ++last_number, false};
    made.fetch_add(1, std::memory_order_release);
    object.block(block).mark_borrowed();
    return loan;
}

Loan* of(const Object& object, std::uint32_t block) noexcept {
    const Locked lock(table_lock);
    return find(&object, block);
}

void end(Loan& loan) noexcept {
    loan.drop_twin();
    loan.object->block(loan.block).clear_borrowed();
    const Locked lock(table_lock);
    loan.object = nullptr;
    made.fetch_sub(1, std::memory_order_release);
}

Loan* lock(std::size_t place) noexcept {
    for (;;) {
        {
            // As long as the loan is in the table its object exists: freeing an object ends its loans first.
            const Locked lock(table_lock);
            Loan& loan = table[place];
            if (loan.object == nullptr) return nullptr;
            if (loan.object->block(loan.block).try_lock()) return &loan;
        }
        nap(std::chrono::microseconds(20));
    }
}

std::size_t oldest() noexcept {
    const Locked lock(table_lock);
    const auto older = [](const Loan& a, const Loan& b) {
        return a.object != nullptr && (b.object == nullptr || a.number < b.number);
    };
    return static_cast<std::size_t>(std::min_element(table.begin(), table.end(), older) - table.begin());
}

}  // namespace loans

}  // namespace hpe
