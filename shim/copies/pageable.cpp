// SPDX-License-Identifier: MIT
// Whether a copy is for staging, and what surrounds it there.
#include "shim/copies/pageable.h"

#include <chrono>
#include <limits>
#include <optional>

#include "shim/copies/break_even.h"
#include "shim/copies/reservations.h"
#include "shim/driver/driver.h"
#include "shim/observe/report.h"

namespace hpe {

constinit BreakEven break_even;

}  // namespace hpe

namespace hpe::pageable::detail {

namespace {

// Copies of rows cost more than linear ones in both ways, though not equally more.
constinit Crossover ways_to_device, ways_to_host, ways_of_rows_to_device, ways_of_rows_to_host;
Crossover& crossover(const Copy& copy) noexcept {
    const bool in_rows = copy.extent.rows > 1;
    if (copy.direction == Copy::Direction::ToDevice) return in_rows ? ways_of_rows_to_device : ways_to_device;
    return in_rows ? ways_of_rows_to_host : ways_to_host;
}

// From the first byte to the last.
DeviceRange on_device(const Copy& copy) noexcept {
    return {copy.device, (copy.extent.rows - 1) * copy.extent.device_pitch + copy.extent.width};
}
DeviceRange on_host(const Copy& copy) noexcept {
    return {reinterpret_cast<std::uintptr_t>(copy.host),
            (copy.extent.rows - 1) * copy.extent.host_pitch + copy.extent.width};
}
Touched touched(const Copy& copy) noexcept {
    return copy.direction == Copy::Direction::ToDevice ? Touched{on_device(copy), on_host(copy)}
                                                       : Touched{on_host(copy), on_device(copy)};
}

bool is_known(CUdeviceptr address) noexcept {
    unsigned type = 0;
    return driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_ERROR_INVALID_VALUE;
}
// Memory that the driver knows (pinned, registered, managed) needs no staging; a copy that ends in such memory and
// began in other may be an error, which is the driver's to find.
bool is_pageable(const Copy& copy) noexcept {
    if (copy.host == nullptr) return false;  // an error of the program's: the driver returns it
    const auto range = on_host(copy);
    return !is_known(range.begin) && !is_known(range.begin + range.bytes - 1);
}

// A copy that the driver would refuse must not be made in part.
bool in_one_allocation(const DeviceRange& range) noexcept {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return driver.cuMemGetAddressRange_v2(&base, &size, range.begin) == CUDA_SUCCESS && range.begin >= base &&
           range.begin - base <= size && range.bytes <= size - (range.begin - base);
}

// Waits for earlier work in the stream, and in the streams that it waits for, by an event: an event in the legacy
// stream comes after the work of all blocking streams ("Stream synchronization behavior" of the driver manual), which
// is not documented of synchronizing that stream. A new event for each copy, since another thread's may come after a
// kernel that waits for this thread. NOT_READY: no event could be made.
CUresult wait_for_earlier(CUstream stream) noexcept {
    CUevent event = nullptr;
    auto result = driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return CUDA_ERROR_NOT_READY;
    result = driver.cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) result = driver.cuEventSynchronize(event);
    driver.cuEventDestroy_v2(event);
    return result;
}

CUresult transfer(staging::Lane& lane, const Copy& copy, CUstream stream) noexcept {
    report::copy_staged(copy.extent.bytes());
    auto* host = static_cast<std::byte*>(copy.host);
    return copy.direction == Copy::Direction::ToDevice
               ? staging::copy_to_device(lane, copy.device, host, copy.extent, stream, copy.returns == Return::Done)
               : staging::copy_to_host(lane, host, copy.device, copy.extent, stream);
}

}  // namespace

bool worth_asking(const staging::Extent& extent) noexcept {
    return extent.bytes() >= Crossover::kSmallest && staging::helpers() != 0 && staging::takes(extent);
}

unsigned long long now() noexcept {
    return static_cast<unsigned long long>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void driver_took(const Copy& copy, unsigned long long nanoseconds) noexcept {
    crossover(copy).took(copy.extent.bytes(), Crossover::Way::Driver, nanoseconds);
}

constinit UnderWay::Copies copies;

Attempt attempt(const Copy& copy, const UnderWay& under_way) noexcept {
    // While any stream is captured some calls are errors that the program must see.
    if (in_flight.capturing_anywhere()) return {};
    const auto& extent = copy.extent;
    const auto bytes = extent.bytes();
    auto& ways = crossover(copy);
    const bool waits = copy.returns == Return::Done;
    // Only a copy that waits tells how long it takes.
    const bool measure = waits && under_way.only_copy() && ways.measuring(bytes);
    const auto way = ways.choose(bytes, measure);
    if (way == Crossover::Way::Driver && !measure) return {};
    if (!is_pageable(copy) || !in_one_allocation(on_device(copy))) return {};
    const auto may_be_pinned =
        staging::asked_for() ? std::numeric_limits<std::size_t>::max() : break_even.earned_with(bytes);
    if (may_be_pinned == 0) return {};
    const auto stream = named(copy.stream, copy.flavour);
    const CUcontext context = context_if_current(stream);
    if (context == nullptr) return {};
    const CaptureRelaxed relaxed;
    std::optional<StreamReservation> reservation;
    if (way == Crossover::Way::Staged) {
        reservation.emplace(stream, touched(copy));
        // A capture may have begun while the reservation waited.
        if (!reservation->held() || in_flight.capturing_anywhere()) return {};
    }
    // Such a copy begins after the earlier work of its stream. That work is waited for here, so that only the copy is
    // measured, and so that bounce buffers can be made.
    if (waits) {
        const auto result = wait_for_earlier(stream);
        if (result == CUDA_ERROR_NOT_READY) return {};
        if (result != CUDA_SUCCESS) return {true, false, result};
    }
    if (way == Crossover::Way::Driver) return {false, measure, CUDA_SUCCESS};
    // Pinning waits for the device, which may be waiting for this thread.
    staging::Lane lane(context, bytes, may_be_pinned, [] { return in_flight.idle(); });
    if (lane.size() < 2) return {};
    if (!waits) {
        // The program may unblock the stream only after such a copy has returned.
        if (bytes <= kKeptToDevice && !staging::has_room(lane, extent)) return {};
        return {true, false, transfer(lane, copy, stream)};
    }
    const bool to_device = copy.direction == Copy::Direction::ToDevice;
    const auto begin = measure ? now() : 0;
    const auto result = transfer(lane, copy, to_device ? lane.to_device() : lane.to_host());
    if (measure && under_way.only_copy() && !lane.growing() && result == CUDA_SUCCESS)
        ways.took(bytes, way, now() - begin);
    return {true, false, result};
}

}  // namespace hpe::pageable::detail
