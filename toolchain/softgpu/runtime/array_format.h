// SPDX-License-Identifier: MIT
// Formats of elements as the runtime's channel descriptions and as the driver's numbers, and array handles.
// Pure functions. Errors: false.
#pragma once

#include "driver.h"

namespace hpe::soft::cudart {

inline CUarray driver_array(cudaArray_const_t array) {
    return reinterpret_cast<CUarray>(const_cast<struct cudaArray*>(array));
}

// False: no array has elements of this kind.
bool driver_format(const cudaChannelFormatDesc& c, CUarray_format& format, unsigned& channels);
bool runtime_format(CUarray_format format, unsigned channels, cudaChannelFormatDesc& c);

}  // namespace hpe::soft::cudart
