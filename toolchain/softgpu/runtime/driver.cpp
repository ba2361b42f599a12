// SPDX-License-Identifier: MIT
// Loads the driver library and resolves its functions.
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace hpe::soft::cudart {
namespace {

// Stands in for a function that the driver does not have, so that a call of it is an error and not a crash.
template <class Function, const char* Name>
struct Missing;
template <class... Arguments, const char* Name>
struct Missing<CUresult (*)(Arguments...), Name> {
    static CUresult call(Arguments...) { return not_supported(Name); }
};

namespace names {
#define PLAIN(name, version) constexpr char name[] = #name;
#define STREAM(name, version, per_thread_version) constexpr char name[] = #name;
#include "driver_functions.inc"
#undef PLAIN
#undef STREAM
}  // namespace names

struct Loaded {
    Driver flavours[2] = {};
    cudaError_t error = cudaErrorInsufficientDriver;
};

std::atomic<bool> in_child{false};
std::atomic<bool> at_exit{false};
std::atomic<const Loaded*> loaded{nullptr};

template <class Function, const char* Name>
Function resolve(PFN_cuGetProcAddress_v12000 get, int version, cuuint64_t flags) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (get(Name, &found, version, flags, &status) != CUDA_SUCCESS || found == nullptr) {
        return &Missing<Function, Name>::call;
    }
    return reinterpret_cast<Function>(found);
}

cudaError_t load(Loaded& into) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return cudaErrorInsufficientDriver;
    auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    if (get == nullptr) return cudaErrorInsufficientDriver;
    void* again = nullptr;
    CUdriverProcAddressQueryResult status{};
    if (get("cuGetProcAddress", &again, 12000, 0, &status) == CUDA_SUCCESS && again != nullptr) {
        get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(again);
    }

    for (Driver& d : into.flavours) {
        const bool per_thread = &d == &into.flavours[static_cast<int>(Flavour::PerThread)];
        const cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
        d.cuGetProcAddress = get;
#define PLAIN(name, version) \
    d.name = per_thread ? into.flavours[0].name : resolve<PFN_##name##_v##version, names::name>(get, version, 0);
#define STREAM(name, version, per_thread_version) \
    d.name = resolve<PFN_##name##_v##version, names::name>(get, per_thread ? per_thread_version : version, flags);
#include "driver_functions.inc"
#undef PLAIN
#undef STREAM
    }
    return static_cast<cudaError_t>(into.flavours[0].cuInit(0));
}

const Loaded& load_once() {
    static std::once_flag once;
    std::call_once(once, [] {
        // Lives as long as the process: threads may still make calls while it exits.
        auto* result = new Loaded;
        result->error = load(*result);
        // A child has no device. What it may still do is exit, and that must not touch the driver.
        pthread_atfork(nullptr, nullptr, [] { in_child.store(true, std::memory_order_relaxed); });
        std::atexit([] { at_exit.store(true, std::memory_order_relaxed); });
        loaded.store(result, std::memory_order_release);
    });
    return *loaded.load(std::memory_order_acquire);
}

}  // namespace

const Driver* driver(Flavour flavour, cudaError_t& error) {
    const Loaded* now = loaded.load(std::memory_order_acquire);
    if (now == nullptr) now = &load_once();
    error = in_child.load(std::memory_order_relaxed) ? cudaErrorInitializationError : now->error;
    return error == cudaSuccess ? &now->flavours[static_cast<int>(flavour)] : nullptr;
}

const Driver* loaded_driver() {
    const Loaded* now = loaded.load(std::memory_order_acquire);
    if (now == nullptr || now->error != cudaSuccess) return nullptr;
    if (in_child.load(std::memory_order_relaxed) || at_exit.load(std::memory_order_relaxed)) return nullptr;
    return &now->flavours[0];
}

bool forked() { return in_child.load(std::memory_order_relaxed); }

CUresult not_supported(const char* name) {
    constexpr int remembered = 64;
    static std::atomic<const char*> said[remembered];
    for (auto& slot : said) {
        const char* expected = nullptr;
        if (slot.compare_exchange_strong(expected, name)) {
            std::fprintf(stderr, "hpe-soft: %s is not supported by the soft device\n", name);
            break;
        }
        if (expected == name || std::strcmp(expected, name) == 0) break;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace hpe::soft::cudart
