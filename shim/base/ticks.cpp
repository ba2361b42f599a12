// SPDX-License-Identifier: MIT
// Which clock is read, and what its ticks are worth.
#include "shim/base/ticks.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "shim/base/kernel_file.h"

namespace hpe::ticks {

namespace {

// Of two scales, on which the same stretch is `in` and `of` long: how long `steps` of the second are on the first. In
// integers: times since a machine's start are too large for a double to the nanosecond.
__extension__ using Wide = unsigned __int128;
std::uint64_t scaled(std::uint64_t steps, std::uint64_t in, std::uint64_t of) noexcept {
    return of == 0 ? steps : static_cast<std::uint64_t>(static_cast<Wide>(steps) * in / of);
}

}  // namespace

// The kernel has tried the counter on all processors before it uses it, and leaves it when it turns out wrong.
void choose() noexcept {
    char name[16] = {};
    const kernel::File file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    const auto length = file.read(name, sizeof name);
    by_counter = by_counter || (length > 0 && std::string_view(name, static_cast<std::size_t>(length)) == "tsc\n");
    beginning = point();
}

// The narrowest of some: a thread may lose its processor between two calls.
Point point() noexcept {
    constexpr int kTries = 3;
    Point best{};
    auto width = ~std::uint64_t{0};
    for (int i = 0; i < kTries; ++i) {
        const auto before = now();
        const auto time = nanoseconds();
        const auto after = now();
        if (after - before >= width) continue;
        width = after - before;
        best = {by_counter ? before + width / 2 : time, time};
    }
    return best;
}

std::uint64_t ticks_in(std::uint64_t nanoseconds, const Point& from, const Point& to) noexcept {
    return scaled(nanoseconds, to.ticks - from.ticks, to.nanoseconds - from.nanoseconds);
}

Timescale::Timescale(std::vector<Point> points) : points_(std::move(points)) {
    std::sort(points_.begin(), points_.end(), [](const auto& a, const auto& b) { return a.ticks < b.ticks; });
    std::size_t kept = 0;
    for (const auto& point : points_) {
        if (kept != 0 &&
            (point.ticks <= points_[kept - 1].ticks || point.nanoseconds <= points_[kept - 1].nanoseconds)) {
            continue;
        }
        points_[kept++] = point;
    }
    points_.resize(kept);
    if (points_.empty()) points_.push_back({0, 0});
}

std::uint64_t Timescale::nanoseconds(std::uint64_t ticks) const noexcept {
    const auto& first = points_.front();
    const auto& last = points_.back();
    const auto all_ticks = last.ticks - first.ticks, all = last.nanoseconds - first.nanoseconds;
    if (ticks < first.ticks) {
        const auto earlier = scaled(first.ticks - ticks, all, all_ticks);
        return first.nanoseconds - std::min(earlier, first.nanoseconds);
    }
    if (ticks >= last.ticks) return last.nanoseconds + scaled(ticks - last.ticks, all, all_ticks);
    const auto after = std::upper_bound(points_.begin(), points_.end(), ticks,
                                        [](auto value, const auto& point) { return value < point.ticks; });
    const auto& from = *(after - 1);
    return from.nanoseconds +
           scaled(ticks - from.ticks, after->nanoseconds - from.nanoseconds, after->ticks - from.ticks);
}

}  // namespace hpe::ticks
