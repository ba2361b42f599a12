// SPDX-License-Identifier: MIT
// The frame of every runtime function: reach the driver, make sure of a context, do the work, remember the error.
#pragma once

#include "context.h"
#include "driver.h"

namespace hpe::soft::cudart {

inline cudaError_t as_error(cudaError_t e) { return e; }
// The runtime's error numbers are the driver's since CUDA 10.1.
inline cudaError_t as_error(CUresult r) { return static_cast<cudaError_t>(r); }

// Remembers an error for cudaGetLastError of the calling thread, and hands it back.
cudaError_t record(cudaError_t error);

// Calls work(driver) without asking for a context.
template <class Work>
cudaError_t with_driver(Work&& work) {
    cudaError_t error = cudaSuccess;
    const Driver* d = driver(Flavour::Legacy, error);
    return record(d != nullptr ? as_error(work(*d)) : error);
}

// Calls work(driver, device's handle), with no context.
template <class Work>
cudaError_t with_device(int device, Work&& work) {
    return with_driver([&](const Driver& d) {
        CUdevice handle{};
        if (cudaError_t e = device_handle(d, device, handle)) return e;
        return as_error(work(d, handle));
    });
}

// Calls work(driver) in the context that the calling thread's runtime calls use.
template <class Work>
cudaError_t with_context(Flavour flavour, Work&& work) {
    cudaError_t error = cudaSuccess;
    const Driver* d = driver(flavour, error);
    if (d != nullptr) error = ensure_context(*d);
    if (error == cudaSuccess) error = as_error(work(*d));
    if (error == cudaErrorContextIsDestroyed && renew_context(*d)) error = as_error(work(*d));
    return record(error);
}
template <class Work>
cudaError_t with_context(Work&& work) {
    return with_context(Flavour::Legacy, work);
}

inline CUdeviceptr device_pointer(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
inline CUdeviceptr* device_pointer(void** p) { return reinterpret_cast<CUdeviceptr*>(p); }

}  // namespace hpe::soft::cudart

#define HPE_LIST(...) __VA_ARGS__
// Begins the definition of a function that exists in both default-stream flavours; the body sees `flavour`.
// `suffix` is ptds or ptsz; `arguments` repeats the names of `parameters`.
#define HPE_BOTH_FLAVOURS(name, suffix, parameters, arguments)                             \
    static cudaError_t name##_in(hpe::soft::cudart::Flavour flavour, HPE_LIST parameters); \
    extern "C" cudaError_t name parameters {                                               \
        return name##_in(hpe::soft::cudart::Flavour::Legacy, HPE_LIST arguments);          \
    }                                                                                      \
    extern "C" cudaError_t name##_##suffix parameters;                                     \
    extern "C" cudaError_t name##_##suffix parameters {                                    \
        return name##_in(hpe::soft::cudart::Flavour::PerThread, HPE_LIST arguments);       \
    }                                                                                      \
    static cudaError_t name##_in(hpe::soft::cudart::Flavour flavour, HPE_LIST parameters)
