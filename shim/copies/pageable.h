// SPDX-License-Identifier: MIT
// The program's own copies between pageable memory and the device: through staging where that is faster than the driver
// (Crossover) and the process copies enough (BreakEven), with the order and the waiting that CUDA documents for the
// call ("API synchronization behavior" of the driver manual). A copy that returns when it is done goes through streams
// of libhpe's own, so that copies of both directions overlap; an asynchronous copy goes through its own stream.
//
// Bytes. Threads: any, inside the gate as a launch. The memory is the program's. Errors: the driver's; `driver` is the
// program's own call, made when the copy is not for us.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "shim/copies/crossover.h"
#include "shim/driver/inflight.h"
#include "shim/transfer/staging.h"

namespace hpe::pageable {

// Asynchronous copies of pageable memory up to these sizes are kept by the driver: they return although their stream is
// blocked, and those to the host may be under way (seen on H200s).
constexpr std::size_t kKeptToDevice = std::size_t{4} << 20, kKeptToHost = std::size_t{2} << 20;

// A copy that returns when it is done, or an asynchronous one, ordered by its stream.
enum class Return : bool { Done, Ordered };

struct Copy {
    enum class Direction : unsigned char { ToDevice, ToHost } direction;
    CUdeviceptr device;
    void* host;  // only read when copied to the device
    staging::Extent extent;
    CUstream stream;
    Flavour flavour;
    Return returns;
};

namespace detail {
bool worth_asking(const staging::Extent& extent) noexcept;
// made: the copy was made, with this result. Otherwise the driver has to make it; `measure`: driver_took() wants to
// know how long that takes.
struct Attempt {
    bool made = false;
    bool measure = false;
    CUresult result = CUDA_SUCCESS;
};
Attempt attempt(const Copy& copy, const UnderWay& under_way) noexcept;
extern constinit UnderWay::Copies copies;
void driver_took(const Copy& copy, unsigned long long nanoseconds) noexcept;
unsigned long long now() noexcept;
}  // namespace detail

template <class Driver>
CUresult copy(const Copy& copy, Driver&& driver) {
    if (!detail::worth_asking(copy.extent)) return driver();
    const UnderWay under_way(detail::copies);
    const auto attempt = detail::attempt(copy, under_way);
    if (attempt.made) return attempt.result;
    if (!attempt.measure) return driver();
    const CaptureRelaxed
        relaxed;  // it has waited already, and began before a capture that another thread has begun since
    const auto begin = detail::now();
    const CUresult result = driver();
    if (result == CUDA_SUCCESS && under_way.only_copy()) detail::driver_took(copy, detail::now() - begin);
    return result;
}

}  // namespace hpe::pageable
