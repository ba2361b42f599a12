// SPDX-License-Identifier: MIT
// Large calls of memcpy and memset on objects: which part of a call the device carries out. What lies on the device
// alone is copied or set there, without a fault, a fetch and a flush; what is valid on the host stays there, since the
// CPU has been working with it.
//
// Source: ADSM/GMAC paper section 4.4 (interposed bulk memory calls).
//
// Bytes; the memory is the program's. Threads: any; InOrder waits for the device. Errors: none; what the device
// cannot do is left to the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/base/errno_kept.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::bulk {

// A device copy costs some tens of microseconds before the first byte; a smaller call is made by the CPU.
constexpr std::size_t kSmallest = std::size_t{256} << 10;

// The first bytes of a call that one side carries out: the device `smallest` or more.
struct Stretch {
    std::size_t bytes;
    void* context;  // of the device, which is to do it; nullptr: the CPU does
};
// `from` 0: what is written comes from no memory. `bytes` is not 0.
Stretch next(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, std::size_t smallest = kSmallest) noexcept;

// Scope in which the calling thread gives the device work in place of its own accesses to objects: the work that the
// device was given before has ended, as for a CPU access, and the context is current. Nothing of it shows to the
// program, whose signal handlers run afterwards: in the middle of a driver call they could neither use objects nor jump
// out. At once: the caller knows that no earlier work uses the bytes.
enum class Order { AfterAll, AtOnce };
class InOrder {
public:
    explicit InOrder(void* context, Order order = Order::AfterAll) noexcept;
    ~InOrder();
    InOrder(const InOrder&) = delete;
    InOrder& operator=(const InOrder&) = delete;
    // False: not on this thread, not now, or the device cannot.
    explicit operator bool() const noexcept { return ready_; }

private:
    const ErrnoKept kept_;
    const SignalsBlocked blocked_;
    std::optional<ContextScope> current_;
    std::optional<CaptureRelaxed> relaxed_;
    int cancellation_ = 0;
    bool ready_ = false;
};

}  // namespace hpe::bulk
