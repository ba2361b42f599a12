// SPDX-License-Identifier: MIT
// The program's host functions, wrapped so that the library knows when one runs: CUDA calls are forbidden on that
// thread meanwhile, and what it writes to objects must reach the device before the stream goes on.
//
// Threads: any. wrap() allocates; the run_ functions are called by the driver.
//
// `data` stays the program's. Errors: wrap() may throw std::bad_alloc.
#pragma once

#include <cuda.h>

namespace hpe::callbacks {

struct HostCall;
struct StreamCall;

// `repeats`: the function belongs to a graph and may run any number of times; equal pairs then share one wrapper, which
// is never freed. Otherwise the wrapper frees itself when it has run. `stream`: its record (InFlight::Mark::record).
HostCall* wrap(CUhostFn function, void* data, bool repeats, const void* stream = nullptr);
StreamCall* wrap(CUstreamCallback function, void* data, const void* stream);
// The driver refused the wrapper and will not call it.
void discard(HostCall* call);
void discard(StreamCall* call);

// Replaces our wrapper by what the program gave.
void unwrap(CUhostFn& function, void*& data);

void CUDA_CB run_host_function(void* call);
void CUDA_CB run_stream_callback(CUstream stream, CUresult status, void* call);

}  // namespace hpe::callbacks
