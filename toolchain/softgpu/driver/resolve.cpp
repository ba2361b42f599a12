// SPDX-License-Identifier: MIT
// How programs find driver functions by name and version.
#include <cstring>

#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/base/exports.h"
#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {
namespace {

// The newest ABI that `version` knows of; among equals the per-thread flavour when that is asked for.
CUresult resolve(const char* symbol, void** out, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
    require(symbol != nullptr && out != nullptr && version <= driver_version);
    constexpr cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    require((flags & ~known) == 0 && flags != known);
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    *out = nullptr;
    auto found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const Export* best = nullptr;
    for (unsigned i = 0; i < export_count; ++i) {
        const Export& e = exports[i];
        if (std::strcmp(e.base, symbol) != 0) continue;
        if (found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (e.version > version || (e.per_thread && !per_thread)) continue;
        // The per-thread flavours were added to existing functions (at 7000) and stand for the ABI of that time.
        if (!best || e.version > best->version || (e.version == best->version && e.per_thread)) best = &e;
    }
    if (best) {
        *out = best->address;
        found = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    if (status) *status = found;
    return CUDA_SUCCESS;  // as documented: the null pointer says it
}

}  // namespace

CUresult api::cuGetProcAddress(const char* symbol, void** out, int version, cuuint64_t flags) {
    return resolve(symbol, out, version, flags, nullptr);
}
CUresult api::cuGetProcAddress_v2(const char* symbol, void** out, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
    return resolve(symbol, out, version, flags, status);
}

// The private tables that NVIDIA's own libraries look for: there are none, and a caller that asks copes with that.
CUresult api::cuGetExportTable(const void** table, const CUuuid*) {
    require(table != nullptr);
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

}  // namespace hpe::soft
