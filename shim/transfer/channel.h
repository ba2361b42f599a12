// SPDX-License-Identifier: MIT
// What the engine has of one context: a stream for each direction, and bounce buffers for host copies that are not
// pinned. The buffers are the channel's own, so that a fault can be served although all of staging's are taken.
//
// A copy to the host holds the buffers that it uses, and not the channel: those of several threads go on side by side.
// Copies to the device go one after the other.
//
// Bytes. Streams, events and buffers end with their context. Threads: any, also in the fault path, with the context
// current. Errors: false, or no buffer, where the driver gives none.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/base/spin_lock.h"
#include "shim/observe/trace.h"
#include "shim/transfer/staging.h"

namespace hpe {

struct Channel {
    static constexpr std::size_t kBufferBytes = std::size_t{512} << 10;
    static constexpr unsigned kBuffers = 4;

    SpinLock lock;
    // Made and forgotten under the lock; a stream that is there is there until its context ends.
    CUstream to_host = nullptr, to_device = nullptr;
    CUevent flushed HPE_GUARDED_BY(lock) = nullptr;  // after the flushes that a stream of the program's waits for
    trace::InStream in_to_device HPE_GUARDED_BY(lock){false};  // what `sent` counts
    std::atomic<std::size_t> sent{0};                          // flushes enqueued and not yet waited for

    std::array<staging::BounceBuffer, kBuffers> buffers{};
    std::atomic<std::uint32_t> held{0};     // bit i: buffer i is held; its holder alone looks at it
    std::atomic<std::uint32_t> waiting{0};  // threads that may sleep: to wake nobody may be a system call, too
    std::atomic<bool> complete{false};      // all buffers are of use

    // Makes what is missing. False: no stream, or no buffer, is to be had.
    bool open() noexcept HPE_REQUIRES(lock);
    // The context has ended.
    void forget() noexcept HPE_REQUIRES(lock);
};

// Buffers of an open channel, for one copy. Waits for one if all are held: their holders wait for transfers in the
// channel's streams, and for no lock.
class HeldBuffers {
public:
    // As many as `bytes` need, and are free.
    HeldBuffers(Channel& channel, std::size_t bytes) noexcept;
    ~HeldBuffers();
    HeldBuffers(const HeldBuffers&) = delete;
    HeldBuffers& operator=(const HeldBuffers&) = delete;

    // False: the channel has none that is of use.
    explicit operator bool() const noexcept { return count_ != 0; }
    std::span<staging::BounceBuffer* const> all() const noexcept { return {buffers_.data(), count_}; }

private:
    Channel& channel_;
    std::array<staging::BounceBuffer*, Channel::kBuffers> buffers_{};
    unsigned count_ = 0;
};

}  // namespace hpe
