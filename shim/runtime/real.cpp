// SPDX-License-Identifier: MIT
// Finding the real functions.
#include "shim/runtime/real.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "shim/base/log.h"

// Read by the dlsym door (doors/dlsym.S), which jumps through it.
extern "C" __attribute__((visibility("hidden"))) constinit void* hpe_real_dlsym;
constinit void* hpe_real_dlsym = nullptr;

namespace hpe {

constinit Driver driver;

namespace {

constinit std::atomic<void*> adopted{nullptr};

using Dlsym = void*(void*, const char*);

Dlsym* next_dlsym() noexcept {
    if (hpe_real_dlsym == nullptr) {
        // dlvsym is no door of ours. glibc 2.34 moved dlsym into libc under a new version.
        void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        hpe_real_dlsym = found;
    }
    return reinterpret_cast<Dlsym*>(hpe_real_dlsym);
}

}  // namespace

void* real_dlsym(void* handle, const char* name) noexcept { return next_dlsym()(handle, name); }

void prepare_real_dlsym() noexcept { next_dlsym(); }

bool adopt_driver(void* handle) noexcept {
    void* const mine = adopted.load(std::memory_order_acquire);
    void* const probe = real_dlsym(handle, "cuInit");
    if (mine != nullptr) return probe != nullptr && probe == real_dlsym(mine, "cuInit");
    if (probe == nullptr) return false;
    // The name alone proves nothing: it must come out of a libcuda. dlsym on a handle also searches its dependencies,
    // so ask which file the function lies in.
    Dl_info info{};
    if (dladdr(probe, &info) == 0 || info.dli_fname == nullptr) return false;
    const char* slash = std::strrchr(info.dli_fname, '/');
    if (std::strncmp(slash != nullptr ? slash + 1 : info.dli_fname, "libcuda.so", 10) != 0) return false;
    Driver found;
    bool complete = true;
#define HPE_FIND(symbol)                                                                  \
    found.symbol = reinterpret_cast<decltype(found.symbol)>(real_dlsym(handle, #symbol)); \
    if (found.symbol == nullptr) complete = false;
    HPE_DRIVER_FUNCTIONS(HPE_FIND)
#undef HPE_FIND
    if (!complete) {
        log::warn("the CUDA driver {} is too old for libhpe: the program runs without it", info.dli_fname);
        return false;
    }
    // Two threads may come here together: both find the same pointers.
    driver = found;
    adopted.store(handle, std::memory_order_release);
    return true;
}

void* libcuda() noexcept {
    void* handle = adopted.load(std::memory_order_acquire);
    if (handle != nullptr) return handle;
    handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return handle != nullptr && adopt_driver(handle) ? handle : nullptr;
}

const char* error_name(CUresult result) noexcept {
    const char* text = nullptr;
    if (driver.cuGetErrorName == nullptr || driver.cuGetErrorName(result, &text) != CUDA_SUCCESS || text == nullptr) {
        return "an unknown error";
    }
    return text;
}

}  // namespace hpe
