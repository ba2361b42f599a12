// SPDX-License-Identifier: MIT
// Buffers are held by bits of one word.
#include "shim/transfer/channel.h"

#include <algorithm>

#include "shim/base/waiting.h"
#include "shim/driver/driver.h"

#include "shim/base/in_fault_path.h"

namespace hpe {

namespace {

bool usable(const staging::BounceBuffer& buffer) noexcept { return buffer.memory != nullptr && !buffer.broken; }

// The device may still use a broken one: it is left where it is.
bool renew(staging::BounceBuffer& buffer) noexcept {
    if (buffer.broken) buffer = {};
    void* memory = nullptr;
    if (make_event(buffer.event) != CUDA_SUCCESS ||
        driver.cuMemHostAlloc(&memory, Channel::kBufferBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
        return false;
    }
    buffer.memory = static_cast<std::byte*>(memory);
    return true;
}

bool hold(Channel& channel, unsigned index) noexcept {
    const auto bit = 1u << index;
    return (channel.held.fetch_or(bit, std::memory_order_acquire) & bit) == 0;
}

void let_go(Channel& channel, unsigned index) noexcept {
    // Sequentially consistent: must not look for sleepers before they can see this.
    channel.held.fetch_and(~(1u << index), std::memory_order_seq_cst);
    if (channel.waiting.load(std::memory_order_seq_cst) != 0) channel.held.notify_all();
}

}  // namespace

bool Channel::open() noexcept {
    // A fetch holds up a CPU thread, and streams of other priorities do not queue in front of it.
    const auto first = make_stream(to_host, Priority::Highest), second = make_stream(to_device, Priority::Highest);
    if (first != CUDA_SUCCESS || second != CUDA_SUCCESS) return false;
    if (complete.load(std::memory_order_acquire)) return true;
    unsigned useful = 0;
    for (unsigned i = 0; i < kBuffers; ++i) {
        if (!hold(*this, i)) continue;
        useful += usable(buffers[i]) || renew(buffers[i]);
        let_go(*this, i);
    }
    complete.store(useful == kBuffers, std::memory_order_release);
    return useful != 0;
}

void Channel::forget() noexcept {
    to_host = nullptr;
    to_device = nullptr;
    flushed = nullptr;
    in_to_device.forget();
    complete.store(false, std::memory_order_relaxed);
    buffers = {};
}

HeldBuffers::HeldBuffers(Channel& channel, std::size_t bytes) noexcept : channel_(channel) {
    const auto pieces = (bytes + Channel::kBufferBytes - 1) / Channel::kBufferBytes;
    const auto wanted = std::clamp<std::size_t>(pieces, 1, Channel::kBuffers);
    for (;;) {
        const auto held = channel.held.load(std::memory_order_acquire);
        for (unsigned i = 0; i < Channel::kBuffers && count_ < wanted; ++i) {
            if (!hold(channel, i)) continue;
            if (usable(channel.buffers[i])) {
                buffers_[count_++] = &channel.buffers[i];
            } else {
                let_go(channel, i);
            }
        }
        if (count_ != 0 || held == 0) return;
        channel.waiting.fetch_add(1, std::memory_order_seq_cst);
        wait_while(channel.held, held, std::memory_order_seq_cst);
        channel.waiting.fetch_sub(1, std::memory_order_relaxed);
    }
}

HeldBuffers::~HeldBuffers() {
    for (unsigned i = 0; i < count_; ++i) {
        if (buffers_[i]->broken) channel_.complete.store(false, std::memory_order_release);
        let_go(channel_, static_cast<unsigned>(buffers_[i] - channel_.buffers.data()));
    }
}

}  // namespace hpe
