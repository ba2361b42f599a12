// SPDX-License-Identifier: MIT
// How many references to each device's primary context the program holds, as far as they were seen. Libraries take one
// and give it back around each piece of work (UCX); only the release of the last one ends the context, and with it all
// that is kept for it. The driver does not tell the number.
//
// Threads: any, outside the fault path. Errors: the driver's. A reference that was not seen makes the number too small,
// which costs time and no more.
#pragma once

#include <cuda.h>

#include <array>
#include <optional>

#include "shim/base/mutex.h"

namespace hpe {

class PrimaryContexts {
public:
    // After the program's call, which succeeded.
    void retained(CUdevice device) noexcept;
    // Before the program's call: one reference is given back. Where another one is known to be held, release() does it
    // at once, and this returns what it returned. Otherwise it may be the last.
    template <class Release>
    std::optional<CUresult> release_one_of_several(CUdevice device, Release&& release) noexcept {
        // Locked during the call: whoever gives back the last one comes behind it.
        const Locked lock(mutex_);
        unsigned* const count = count_of(device);
        if (count == nullptr || *count == 0 || --*count == 0) return std::nullopt;
        const CUresult result = release();
        if (result != CUDA_SUCCESS) ++*count;
        return result;
    }
    // The context was ended, whoever holds it.
    void reset(CUdevice device) noexcept;

private:
    unsigned* count_of(CUdevice device) noexcept HPE_REQUIRES(mutex_) {
        return device >= 0 && static_cast<std::size_t>(device) < counts_.size()
                   ? &counts_[static_cast<std::size_t>(device)]
                   : nullptr;
    }

    Mutex mutex_;
    std::array<unsigned, 64> counts_ HPE_GUARDED_BY(mutex_){};
};

extern constinit PrimaryContexts primary_contexts;

CUresult primary_is_active(CUdevice device, int& active) noexcept;
// The device's primary context; nullptr: it is not active, or there is no such device. Of a lost one that is the
// current context, which it most likely is: it can still be reset.
CUresult primary_context(CUdevice device, CUcontext& context) noexcept;

}  // namespace hpe
