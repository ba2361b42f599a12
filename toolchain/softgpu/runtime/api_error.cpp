// SPDX-License-Identifier: MIT
// Errors: the last one of each thread, their names and texts; and the versions.
#include "api.h"
#include "unsupported.h"

using namespace hpe::soft::cudart;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

// Asking for the last error counts as a use of CUDA: on a machine without a driver it is what says so.
void find_driver() {
    cudaError_t error = cudaSuccess;
    if (!forked() && driver(Flavour::Legacy, error) == nullptr) record(error);
}

}  // namespace

cudaError_t hpe::soft::cudart::record(cudaError_t error) {
    // "Not ready" answers a question, and an H200 does not remember it.
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

int hpe::soft::cudart::unsupported(const char* name) { return record(as_error(not_supported(name))); }

extern "C" {

cudaError_t cudaGetLastError() {
    find_driver();
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    find_driver();
    return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define ERROR(name, text) \
    case name:            \
        return #name;
#include "errors.inc"
#undef ERROR
        default: return "unrecognized error code";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define ERROR(name, text) \
    case name:            \
        return text;
#include "errors.inc"
#undef ERROR
        default: return "unrecognized error code";
    }
}

// 0 without a driver, which is no error.
cudaError_t cudaDriverGetVersion(int* version) {
    if (version == nullptr) return record(cudaErrorInvalidValue);
    *version = 0;
    cudaError_t error = cudaSuccess;
    const Driver* d = driver(Flavour::Legacy, error);
    return d != nullptr ? record(as_error(d->cuDriverGetVersion(version))) : cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    if (version == nullptr) return record(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaProfilerStart() {
    return with_context([](const Driver& d) { return d.cuProfilerStart(); });
}

cudaError_t cudaProfilerStop() {
    return with_context([](const Driver& d) { return d.cuProfilerStop(); });
}
}
