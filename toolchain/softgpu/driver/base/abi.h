// SPDX-License-Identifier: MIT
// The driver's ABI: NVIDIA's headers with every old version declared and no name redirected by a macro, so that
// cuMemAlloc and cuMemAlloc_v2 mean here what they mean in the dynamic symbol table. What each function does is in
// NVIDIA's CUDA Driver API, the book that the other headers name sections of.
//
// Declarations alone: no threads, no state, no errors.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL_ODR
#include <cuda.h>
#include <cudaProfiler.h>
#include <cudaTypedefs.h>
