// SPDX-License-Identifier: MIT
// Recognising sweeps.
#include "protocols/sweeps.h"

#include <algorithm>

namespace hpe {

namespace {

// How many of the blocks first, first + step, ... exist, of `wanted`.
std::uint32_t within(std::int64_t first, std::int32_t step, std::uint32_t wanted, std::uint32_t blocks) noexcept {
    if (first < 0 || first >= blocks) return 0;
    const auto room = step > 0 ? (std::int64_t{blocks} - 1 - first) / step : first / -std::int64_t{step};
    return static_cast<std::uint32_t>(std::min<std::int64_t>(wanted, room + 1));
}

// How many blocks a contiguous sweep should open from `first` on, instead of `count`, so that it ends with a unit.
std::uint32_t in_units(std::int64_t first, std::int32_t step, std::uint32_t count,
                       const Sweeps::Limits& limits) noexcept {
    const auto unit = std::int64_t{limits.unit};
    if (2 * std::int64_t{count} < unit) return count;
    // Where the sweep would end, and how far that is past the last boundary.
    const auto end = step > 0 ? first + count : first + 1 - count;
    const auto over = step > 0 ? end % unit : (unit - end % unit) % unit;
    if (over == 0) return count;
    const auto up = count + unit - over, down = count - over;
    return static_cast<std::uint32_t>(up <= limits.most ? up : down > 0 ? down : count);
}

}  // namespace

// The sweep that predicted this fault, or whose last two distances equal the distance to this fault.
Sweeps::Sweep* Sweeps::going_on(const Fault& fault) noexcept {
    Sweep* strided = nullptr;
    for (auto& s : sweeps_) {
        if (s.object != fault.object || s.serial != fault.serial || s.is_write != fault.is_write) continue;
        if (s.count != 0 && s.next == fault.block) return &s;
        if (!s.confirmed && s.delta != 0 && std::int64_t{s.last} + s.delta == fault.block) strided = &s;
    }
    if (strided != nullptr) {
        strided->step = strided->delta;
        strided->count = 1;
    }
    return strided;
}

// Replaces the sweep whose last fault is the longest ago.
Sweeps::Sweep& Sweeps::begin(const Fault& fault, const Limits& limits) noexcept {
    const Sweep* before = nullptr;
    Sweep* oldest = &sweeps_[0];
    for (auto& s : sweeps_) {
        if (s.object == fault.object && s.serial == fault.serial && s.is_write == fault.is_write &&
            (before == nullptr || s.recent > before->recent)) {
            before = &s;
        }
        if (s.recent < oldest->recent) oldest = &s;
    }
    const auto delta = before == nullptr ? 0 : std::int64_t{fault.block} - before->last;
    const auto count = fault.block == 0 ? std::min(kAtBeginning, limits.most) : 1;
    *oldest = {fault.object,
               fault.serial,
               fault.is_write,
               false,
               fault.block,
               static_cast<std::int32_t>(delta),
               0,
               1,
               count,
               0};
    return *oldest;
}

Sweeps::Reach Sweeps::fault(const Fault& fault, const Limits& limits) noexcept {
    Sweep* sweep = going_on(fault);
    const bool predicted = sweep != nullptr;
    if (!predicted) sweep = &begin(fault, limits);
    Sweep& s = *sweep;
    s.recent = ++faults_;
    latest_ = static_cast<std::size_t>(&s - sweeps_.data());
    const bool neighbours = s.step == 1 || s.step == -1;
    Reach reach;
    reach.open = {fault.block, s.step, within(fault.block, s.step, s.count, limits.blocks)};
    reach.scattered = !predicted && reach.open.count <= 1;
    if (predicted) s.confirmed = true;
    s.delta = predicted ? s.step : s.delta;
    s.last = fault.block;
    const auto next = std::int64_t{fault.block} + std::int64_t{s.step} * reach.open.count;
    // Written blocks are flushed whole: strided writes open one block at a time.
    const auto most = neighbours ? limits.most : fault.is_write ? 1 : std::min(limits.most, kMostStrided);
    const auto twice = std::min(2 * reach.open.count, most);
    s.count = within(next, s.step, neighbours ? in_units(next, s.step, twice, limits) : twice, limits.blocks);
    s.next = s.count != 0 ? static_cast<std::uint32_t>(next) : 0;
    if (predicted) reach.ahead = {s.next, s.step, s.count};
    return reach;
}

void Sweeps::opened(std::uint32_t count) noexcept {
    auto& s = sweeps_[latest_];
    s.next = static_cast<std::uint32_t>(std::int64_t{s.last} + std::int64_t{s.step} * count);
    s.count = std::max(s.count, 1u);
}

}  // namespace hpe
