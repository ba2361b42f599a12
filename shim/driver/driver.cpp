// SPDX-License-Identifier: MIT
// Finding the real functions.
#include "shim/driver/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/base/log.h"
#include "shim/base/next_function.h"

// Read by the doors in doors/dlsym.S, which jump through them.
extern "C" {
__attribute__((visibility("hidden"))) extern void *hpe_real_dlsym, *hpe_real_dlvsym;
constinit void *hpe_real_dlsym = nullptr, *hpe_real_dlvsym = nullptr;
}

namespace hpe {

constinit Driver driver;

namespace {

constinit std::atomic<void*> adopted{nullptr};

// Two threads may come here together: both find the same.
void* next(void*& place, const char* name) noexcept {
    void* known = __atomic_load_n(&place, __ATOMIC_RELAXED);
    if (known == nullptr) {
        known = next_function(name);
        __atomic_store_n(&place, known, __ATOMIC_RELAXED);
    }
    return known;
}

}  // namespace

void* real_dlsym(void* handle, const char* name) noexcept {
    return reinterpret_cast<decltype(&::dlsym)>(next(hpe_real_dlsym, "dlsym"))(handle, name);
}

void* real_dlvsym(void* handle, const char* name, const char* version) noexcept {
    return reinterpret_cast<decltype(&::dlvsym)>(next(hpe_real_dlvsym, "dlvsym"))(handle, name, version);
}

void prepare_real_dlsym() noexcept {
    next(hpe_real_dlsym, "dlsym");
    next(hpe_real_dlvsym, "dlvsym");
}

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
