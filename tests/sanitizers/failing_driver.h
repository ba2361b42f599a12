// SPDX-License-Identifier: MIT
// Makes the driver calls that libhpe itself makes fail at random: transfers, events, streams, waits, registrations. A
// call that failed has done nothing.
//
// Threads: install() before any other; the rest any.
#pragma once

#include <cuda.h>

#include <atomic>
#include <random>

#include "shim/driver/driver.h"

namespace failing_driver {

inline hpe::Driver the_true;
inline unsigned one_in = 0;  // calls; 0: none fails
inline std::atomic<std::size_t> failed{0};

inline bool fails() {
    thread_local std::minstd_rand random{std::random_device{}()};
    if (random() % one_in != 0) return false;
    ++failed;
    return true;
}

template <class Function>
struct Failing;
template <class... A>
struct Failing<CUresult (*)(A...)> {
    template <auto Member>
    static CUresult call(A... arguments) {
        return fails() ? CUDA_ERROR_UNKNOWN : (the_true.*Member)(arguments...);
    }
};

// One in `calls` of each of these fails from now on.
inline void install(unsigned calls) {
    the_true = hpe::driver;
    one_in = calls;
#define FAILING(name) hpe::driver.name = &Failing<decltype(hpe::Driver::name)>::call<&hpe::Driver::name>;
    FAILING(cuMemcpyHtoDAsync_v2)
    FAILING(cuMemcpyDtoHAsync_v2)
    FAILING(cuMemcpyHtoD_v2)
    FAILING(cuMemcpyDtoH_v2)
    FAILING(cuEventCreate)
    FAILING(cuEventRecord)
    FAILING(cuEventSynchronize)
    FAILING(cuEventQuery)
    FAILING(cuStreamCreateWithPriority)
    FAILING(cuStreamSynchronize)
    FAILING(cuStreamQuery)
    FAILING(cuStreamWaitEvent)
    FAILING(cuMemHostAlloc)
    FAILING(cuMemHostRegister_v2)
#undef FAILING
}

}  // namespace failing_driver
