// SPDX-License-Identifier: MIT
// The table of formats that arrays and textures have in both APIs.
#include "array_format.h"

namespace hpe::soft::cudart {

bool driver_format(const cudaChannelFormatDesc& c, CUarray_format& format, unsigned& channels) {
    const int bits[] = {c.x, c.y, c.z, c.w};
    channels = 0;
    while (channels < 4 && bits[channels] != 0) ++channels;
    for (unsigned i = 1; i < 4; ++i) {
        if (bits[i] != (i < channels ? c.x : 0)) return false;
    }
    if (channels == 0 || channels == 3) return false;
    switch (c.f) {
        case cudaChannelFormatKindUnsigned:
            format = c.x == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
                     : c.x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                                 : CU_AD_FORMAT_UNSIGNED_INT32;
            return c.x == 8 || c.x == 16 || c.x == 32;
        case cudaChannelFormatKindSigned:
            format = c.x == 8    ? CU_AD_FORMAT_SIGNED_INT8
                     : c.x == 16 ? CU_AD_FORMAT_SIGNED_INT16
                                 : CU_AD_FORMAT_SIGNED_INT32;
            return c.x == 8 || c.x == 16 || c.x == 32;
        case cudaChannelFormatKindFloat:
            format = c.x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
            return c.x == 16 || c.x == 32;
        default: return false;
    }
}

bool runtime_format(CUarray_format format, unsigned channels, cudaChannelFormatDesc& c) {
    int bits = 0;
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8: bits = 8, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_UNSIGNED_INT16: bits = 16, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_UNSIGNED_INT32: bits = 32, c.f = cudaChannelFormatKindUnsigned; break;
        case CU_AD_FORMAT_SIGNED_INT8: bits = 8, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_SIGNED_INT16: bits = 16, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_SIGNED_INT32: bits = 32, c.f = cudaChannelFormatKindSigned; break;
        case CU_AD_FORMAT_HALF: bits = 16, c.f = cudaChannelFormatKindFloat; break;
        case CU_AD_FORMAT_FLOAT: bits = 32, c.f = cudaChannelFormatKindFloat; break;
        default: return false;
    }
    c.x = bits;
    c.y = channels > 1 ? bits : 0;
    c.z = c.w = channels > 2 ? bits : 0;
    return true;
}

}  // namespace hpe::soft::cudart
