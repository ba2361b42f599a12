// SPDX-License-Identifier: MIT
// What surrounds a staged copy of a file.
#include "shim/copies/files.h"

#include <algorithm>
#include <limits>

#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/copies/break_even.h"

namespace hpe::files {

namespace {

// What is shorter costs more to hand over than to copy.
constexpr std::size_t kSmallest = std::size_t{1} << 20;

template <class Use>
std::size_t with_lane(const bulk::Stretch& stretch, Use&& use) noexcept {
    if (stretch.bytes < kSmallest || staging::helpers() == 0) return 0;
    const auto may_be_pinned =
        staging::asked_for() ? std::numeric_limits<std::size_t>::max() : break_even.earned_with(stretch.bytes);
    if (may_be_pinned == 0) return 0;
    const bulk::InOrder in_order(stretch.context);
    if (!in_order) return 0;
    const Inside inside;
    staging::Lane lane(static_cast<CUcontext>(stretch.context), stretch.bytes, may_be_pinned,
                       [] { return in_flight.idle(); });
    return lane.size() >= 2 ? use(lane) : 0;
}

// Inside the gate, so that no fault brings bytes meanwhile that are old afterwards.
std::size_t read_in_gate(staging::Lane& lane, std::uintptr_t at, const copiers::File& file,
                         std::size_t bytes) noexcept {
    auto& state = coherence();
    const LaunchInGate in_gate(state.launch_gate());
    if (state.needs_release() && state.before_device_writes({at, bytes}) != CUDA_SUCCESS) return 0;
    const auto done = staging::read_to_device(lane, at, file, bytes);
    // What was brought ahead of the CPU is old now, as after any work of the device.
    in_flight.enqueued(nullptr, Flavour::Legacy, this_thread.slot);
    return done;
}

}  // namespace

std::size_t read(std::uintptr_t at, const bulk::Stretch& stretch, const copiers::File& file) noexcept {
    // Faults of other threads wait meanwhile, some milliseconds.
    constexpr std::size_t kAtOnce = std::size_t{256} << 20;
    return with_lane(stretch, [&](staging::Lane& lane) {
        std::size_t done = 0, got = 0, wanted = 0;
        do {
            wanted = std::min(stretch.bytes - done, kAtOnce);
            const auto offset = file.offset + static_cast<std::int64_t>(done);
            got = read_in_gate(lane, at + done, file.from(offset), wanted);
            done += got;
        } while (got == wanted && done < stretch.bytes);
        return done;
    });
}

std::size_t write(std::uintptr_t at, const bulk::Stretch& stretch, staging::Sink& sink) noexcept {
    return with_lane(stretch,
                     [&](staging::Lane& lane) { return staging::copy_to_sink(lane, sink, at, stretch.bytes); });
}

}  // namespace hpe::files
