// SPDX-License-Identifier: MIT
// Times for measuring, read as cheaply as the machine allows: ticks of the processor's own counter where the kernel
// keeps CLOCK_MONOTONIC by that counter, too (12 ns a call instead of 28 on an H200's host), else nanoseconds of that
// clock.
//
// What a tick is worth changes, slowly, as the kernel corrects its clock: hence points at which both were read, and a
// Timescale between them. With one every second the error is that of the points, some 20 ns.
//
// Threads and errors: now(), nanoseconds() and point() from any thread, also in the fault path, cannot fail. A
// Timescale is a value; it allocates (std::bad_alloc).
#pragma once

#include <time.h>

#include <cstdint>
#include <vector>

namespace hpe::ticks {

// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t nanoseconds() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Set by choose(), never unset.
inline constinit bool by_counter = false;

inline std::uint64_t now() noexcept { return by_counter ? __builtin_ia32_rdtsc() : nanoseconds(); }

struct Point {
    std::uint64_t ticks, nanoseconds;
};
// Now.
Point point() noexcept;
// Chooses the clock. Before any time is kept; reads a file of the kernel's.
void choose() noexcept;
// When it was chosen.
inline constinit Point beginning{};
// That many nanoseconds in ticks, as they were between two points.
std::uint64_t ticks_in(std::uint64_t nanoseconds, const Point& from = beginning, const Point& to = point()) noexcept;

class Timescale {
public:
    // Points in any order. If points contradict each other the later ones are left out.
    explicit Timescale(std::vector<Point> points);
    // Never decreases from one tick to the next. Before the first point and after the last one the average rate holds;
    // with one point a tick is a nanosecond.
    std::uint64_t nanoseconds(std::uint64_t ticks) const noexcept;

private:
    std::vector<Point> points_;
};

}  // namespace hpe::ticks
