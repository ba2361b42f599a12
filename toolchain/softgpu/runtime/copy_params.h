// SPDX-License-Identifier: MIT
// Turns the runtime's descriptions of a copy into the driver's.
// Sizes in bytes. Threads: any, there is no state. Errors: CUDA's, for what cudaMemcpy* refuses.
#pragma once

#include "driver.h"

namespace hpe::soft::cudart {

// What a direction says of the memory at each end. False: there is no such direction.
bool memory_types(cudaMemcpyKind kind, CUmemorytype& source, CUmemorytype& destination);

// One row, or rows `pitch` bytes apart.
cudaError_t describe_2d(CUDA_MEMCPY2D& c, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                        size_t height, cudaMemcpyKind kind);
cudaError_t describe_3d(const Driver& d, CUDA_MEMCPY3D& c, const cudaMemcpy3DParms& p);
cudaError_t describe_3d_peer(const Driver& d, CUDA_MEMCPY3D_PEER& c, const cudaMemcpy3DPeerParms& p);
// A linear copy as a graph node holds it.
cudaError_t describe_1d(CUDA_MEMCPY3D& c, void* to, const void* from, size_t size, cudaMemcpyKind kind);
// The way back, for cudaGraphMemcpyNodeGetParams.
void describe_runtime(const Driver& d, cudaMemcpy3DParms& p, const CUDA_MEMCPY3D& c);

// Bytes of one element of an array; 0 when it is none.
size_t element_bytes(const Driver& d, cudaArray_const_t array);

}  // namespace hpe::soft::cudart
