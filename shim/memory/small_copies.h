// SPDX-License-Identifier: MIT
// Which side is to copy a few bytes of a message between an object and host memory, where the newest are the device's:
// the device, by a copy of exactly these; or the CPU, for which their block is opened, until the next launch closes it.
// The device is the nearer side for a program that launches kernels between its messages: on two H200s, 8 bytes there
// and back between two kernels took 40 us by copies, and 57 by the CPU (26 with cudaMemcpy by hand, which need not wait
// twice). The CPU is, for a program that sends the same bytes again and again, or that uses them itself.
//
// So the device copies, until several messages in turn found that no work of the program's had come since the last; and
// after an access of the CPU's own it is left to the CPU for some messages.
//
// Threads: any; those who come at the same time may count for one. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace hpe {

class SmallCopies {
public:
    // `work`: how often the program has given the device work so far.
    bool by_device(std::uint64_t work) const noexcept {
        return for_cpu_.load(std::memory_order_relaxed) == 0 &&
               (work != work_.load(std::memory_order_relaxed) || idle_.load(std::memory_order_relaxed) < kMessages);
    }
    // A message's bytes were copied, by either side.
    void made(std::uint64_t work) noexcept {
        const auto idle = idle_.load(std::memory_order_relaxed);
        const bool worked = work != work_.load(std::memory_order_relaxed);
        idle_.store(worked ? 0u : idle < kMessages ? idle + 1 : idle, std::memory_order_relaxed);
        work_.store(work, std::memory_order_relaxed);
        if (const auto left = for_cpu_.load(std::memory_order_relaxed); left != 0) {
            for_cpu_.store(left - 1, std::memory_order_relaxed);
        }
    }
    // Also within the fault path.
    void accessed_by_cpu() noexcept { for_cpu_.store(kMessages, std::memory_order_relaxed); }
    void forget() noexcept {
        work_.store(0, std::memory_order_relaxed);
        idle_.store(0, std::memory_order_relaxed);
        for_cpu_.store(0, std::memory_order_relaxed);
    }

private:
    // More than a program usually sends and receives of an array between two launches.
    static constexpr std::uint32_t kMessages = 4;
    std::atomic<std::uint64_t> work_{0};
    std::atomic<std::uint32_t> idle_{0}, for_cpu_{0};
};

}  // namespace hpe
