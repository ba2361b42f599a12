// SPDX-License-Identifier: MIT
// How the soft device's runtime reaches the driver: dlopen at the first call that needs it, one public dlsym, and
// everything else through cuGetProcAddress, as NVIDIA's runtime does. A library that interposes the driver there sees
// every call of a program.
#pragma once

#include <cuda.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace hpe::soft::cudart {

// What the null stream means to the caller: each stream function is exported twice, the second time with the suffix
// _ptds or _ptsz for programs compiled with --default-stream per-thread.
enum class Flavour { Legacy, PerThread };

struct Driver {
#define PLAIN(name, version) PFN_##name##_v##version name;
#define STREAM(name, version, per_thread_version) PFN_##name##_v##version name;
#include "driver_functions.inc"
#undef PLAIN
#undef STREAM
    PFN_cuGetProcAddress_v12000 cuGetProcAddress;
};

// The driver, loaded and initialised; nullptr with `error` set when that is impossible (no driver, no device, a child
// of a process that had used the driver before it forked).
const Driver* driver(Flavour flavour, cudaError_t& error);
// The driver if a call has already loaded it and it may still be used, otherwise nullptr. Loads nothing.
const Driver* loaded_driver();
// This process is a child of one that had loaded the driver.
bool forked();

// Says once per name, on stderr, that something is not supported.
CUresult not_supported(const char* name);

}  // namespace hpe::soft::cudart
