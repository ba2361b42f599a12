// SPDX-License-Identifier: MIT
// Every way to find the driver's functions: dlsym on a handle, RTLD_DEFAULT, RTLD_NEXT, dlvsym, cuGetProcAddress.
// Linked with no CUDA library. Run as `resolve FORM CASE FAKE VERSIONED HOOKS`: a library that has a cuInit of its own,
// a driver whose functions have the version VERSIONED, and a library that writes over the driver's functions.
#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <thread>

namespace {

bool plain = false;
const char* fake = nullptr;
const char* versioned_driver = nullptr;
const char* hooks = nullptr;

void look(const char* title, void* handle, const char* name) {
    dlerror();
    const void* found = dlsym(handle, name);
    const char* error = dlerror();
    std::printf("%s %s: %s, error %s\n", title, name, found != nullptr ? "found" : "nothing",
                error == nullptr                         ? "none"
                : std::strstr(error, "undefined symbol") ? "undefined symbol"
                                                         : error);
    const char* again = dlerror();
    std::printf("  then %s\n", again != nullptr ? again : "none");
}

constexpr const char* kNames[] = {"cuInit",
                                  "cuMemAlloc_v2",
                                  "cuMemAlloc",
                                  "cuGetProcAddress",
                                  "cuGetProcAddress_v2",
                                  "cuDriverGetVersion",
                                  "cuNoSuchFunction",
                                  "cu",
                                  "cuda",
                                  "malloc",
                                  "no such name"};

void without_driver() {
    void* const global = dlopen(nullptr, RTLD_NOW);
    for (const char* name : kNames) {
        look("default", RTLD_DEFAULT, name);
        look("global", global, name);
        look("next", RTLD_NEXT, name);
    }
    dlopen("libno_such_library.so", RTLD_NOW);
    std::printf("dlopen says %s\n",
                std::strstr(dlerror(), "libno_such_library.so") != nullptr ? "its name" : "nothing");
}

int call(void* found) { return found == nullptr ? -1 : reinterpret_cast<int (*)(unsigned)>(found)(0); }

void with_fake() {
    void* handle = dlopen(fake, RTLD_NOW | RTLD_GLOBAL);
    std::printf("handle %d, default %d, next %d\n", call(dlsym(handle, "cuInit")), call(dlsym(RTLD_DEFAULT, "cuInit")),
                call(dlsym(RTLD_NEXT, "cuInit")));
    look("fake", handle, "cuMemFree_v2");
    look("default", RTLD_DEFAULT, "cuMemFree_v2");
    std::printf("global %d\n", call(dlsym(dlopen(nullptr, RTLD_NOW), "cuInit")));
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    std::printf("now handle %d, default %d, driver %d\n", call(dlsym(handle, "cuInit")),
                call(dlsym(RTLD_DEFAULT, "cuInit")), call(dlsym(driver, "cuInit")));
    look("default", RTLD_DEFAULT, "cuMemFree_v2");
}

// --- using what was found
// ----------------------------------------------------------------------------------------------

using Find = void* (*)(const char* name);

template <class Function>
Function* found(Find find, const char* name) {
    void* function = find(name);
    if (function == nullptr) std::printf("no %s\n", name);
    return reinterpret_cast<Function*>(function);
}

// Names are given as cuGetProcAddress wants them; `suffixed` as exported.
void use(const char* title, Find find) {
    CUdevice device = 0;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    const int results[] = {
        found<decltype(cuInit)>(find, "cuInit")(0),
        found<decltype(cuDeviceGet)>(find, "cuDeviceGet")(&device, 0),
        found<decltype(cuDevicePrimaryCtxRetain)>(find, "cuDevicePrimaryCtxRetain")(&context, device),
        found<decltype(cuCtxSetCurrent)>(find, "cuCtxSetCurrent")(context),
        found<decltype(cuMemAlloc)>(find, "cuMemAlloc")(&memory, 10000),
        found<decltype(cuMemsetD8)>(find, "cuMemsetD8")(memory, 5, 10000),
        found<decltype(cuMemsetD8Async)>(find, "cuMemsetD8Async")(memory + 4096, 6, 100, nullptr),
        found<decltype(cuCtxSynchronize)>(find, "cuCtxSynchronize")(),
    };
    std::printf("%s:", title);
    for (const int result : results) std::printf(" %d", result);
    unsigned char values[2] = {0, 0};
    const std::size_t places[2] = {9999, 4100};
    for (int i = 0; i < 2; ++i) {
        if (plain) {
            values[i] = reinterpret_cast<volatile unsigned char*>(memory)[places[i]];
        } else {
            found<decltype(cuMemcpyDtoH)>(find, "cuMemcpyDtoH")(&values[i], memory + places[i], 1);
        }
        std::printf(" value %d", values[i]);
    }
    std::size_t size = 0;
    CUdeviceptr base = 0;
    found<decltype(cuMemGetAddressRange)>(find, "cuMemGetAddressRange")(&base, &size, memory + 7);
    std::printf(" size %zu", size);
    std::printf(" free %d\n", found<decltype(cuMemFree)>(find, "cuMemFree")(memory));
}

void* driver = nullptr;

template <class Lookup>
void* suffixed(const char* name, Lookup lookup) {
    // Its second version takes a context.
    if (std::strcmp(name, "cuCtxSynchronize") == 0) return lookup(name);
    for (const char* suffix : {"_v3", "_v2", ""}) {
        char full[80];
        std::snprintf(full, sizeof full, "%s%s", name, suffix);
        if (void* function = lookup(full)) return function;
    }
    return nullptr;
}
void* by_handle(const char* name) {
    return suffixed(name, [](const char* full) { return dlsym(driver, full); });
}
void* by_default(const char* name) {
    return suffixed(name, [](const char* full) { return dlsym(RTLD_DEFAULT, full); });
}
template <int version, int flags>
void* by_address(const char* name) {
    auto* get = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
        dlsym(driver, "cuGetProcAddress_v2"));
    void* function = nullptr;
    auto status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const int result = get(name, &function, version, flags, &status);
    if (result != 0 || status != CU_GET_PROC_ADDRESS_SUCCESS) std::printf("%s: %d status %d\n", name, result, status);
    return function;
}
template <int version, int flags>
void* by_old_address(const char* name) {
    auto* get = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t)>(dlsym(driver, "cuGetProcAddress"));
    void* function = nullptr;
    if (const int result = get(name, &function, version, flags)) std::printf("%s: %d\n", name, result);
    return function;
}
constexpr const char* kVersion = "VERSIONED";
void* by_version(const char* name) {
    return suffixed(name, [](const char* full) { return dlvsym(driver, full, kVersion); });
}
void* by_version_default(const char* name) {
    return suffixed(name, [](const char* full) { return dlvsym(RTLD_DEFAULT, full, kVersion); });
}
void* by_version_next(const char* name) {
    return suffixed(name, [](const char* full) { return dlvsym(RTLD_NEXT, full, kVersion); });
}
void look_versioned(const char* title, void* handle, const char* name, const char* version) {
    dlerror();
    const void* found = dlvsym(handle, name, version);
    const char* error = dlerror();
    std::printf("%s %s %s: %s, error %s\n", title, name, version, found != nullptr ? "found" : "nothing",
                error != nullptr ? "said" : "none");
}
// cuGetProcAddress found through itself, as the runtime does.
void* by_own_address(const char* name) {
    auto* get = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
        by_address<12000, 0>("cuGetProcAddress"));
    void* function = nullptr;
    get(name, &function, 12000, 0, nullptr);
    return function;
}

void local_driver() {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (const char* name : kNames) look("driver", driver, name);
    for (const char* name : kNames) {
        for (const char* version : {kVersion, "GLIBC_2.2.5"}) {
            look_versioned("driver", driver, name, version);
            look_versioned("default", RTLD_DEFAULT, name, version);
            look_versioned("next", RTLD_NEXT, name, version);
        }
    }
    use("dlsym", by_handle);
    use("cuGetProcAddress_v2", by_address<12000, CU_GET_PROC_ADDRESS_DEFAULT>);
    use("cuGetProcAddress_v2 legacy", by_address<12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM>);
    use("cuGetProcAddress_v2 per thread", by_address<12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM>);
    use("cuGetProcAddress 11.3", by_old_address<11030, CU_GET_PROC_ADDRESS_DEFAULT>);
    use("cuGetProcAddress 11.3 per thread", by_old_address<11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM>);
    use("cuGetProcAddress of itself", by_own_address);
}
void global_driver() {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    for (const char* name : kNames) {
        look("default", RTLD_DEFAULT, name);
        look("next", RTLD_NEXT, name);
    }
    for (const char* name : kNames) {
        look_versioned("default", RTLD_DEFAULT, name, kVersion);
        look_versioned("next", RTLD_NEXT, name, kVersion);
    }
    use("default", by_default);
    use("next",
        [](const char* name) { return suffixed(name, [](const char* full) { return dlsym(RTLD_NEXT, full); }); });
}

// The driver is found by nothing but dlvsym.
void versioned() {
    driver = dlopen(versioned_driver, RTLD_NOW | RTLD_LOCAL);
    for (const char* name : kNames) look_versioned("driver", driver, name, kVersion);
    look_versioned("driver", driver, "cuInit", "NO_SUCH_VERSION");
    use("dlvsym", by_version);
}
void versioned_default() {
    dlopen(versioned_driver, RTLD_NOW | RTLD_GLOBAL);
    for (const char* name : kNames) look_versioned("default", RTLD_DEFAULT, name, kVersion);
    use("dlvsym default", by_version_default);
}
void versioned_next() {
    dlopen(versioned_driver, RTLD_NOW | RTLD_GLOBAL);
    for (const char* name : kNames) look_versioned("next", RTLD_NEXT, name, kVersion);
    use("dlvsym next", by_version_next);
}

void hooked() {
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void* const library = dlopen(hooks, RTLD_NOW | RTLD_LOCAL);
    auto* const owner = reinterpret_cast<const char* (*)(void*, const char*)>(dlsym(library, "hooks_owner"));
    auto* const behind = reinterpret_cast<const char* (*)(const char*)>(dlsym(library, "hooks_owner_behind"));
    const auto say = [](const char* title, const char* name, const char* file) {
        const char* const base = file != nullptr ? std::strrchr(file, '/') : nullptr;
        std::printf("%s %s: %s\n", title, name, base != nullptr ? base + 1 : "nothing");
    };
    for (const char* name : {"cuMemAlloc_v2", "cuMemAlloc", "cuMemFree_v2", "cuMemAllocAsync", "malloc"}) {
        say("default", name, owner(RTLD_DEFAULT, name));
        say("driver", name, owner(driver, name));
        say("next", name, behind(name));
    }
    use("default", by_default);
}

void odd_questions() {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto* get = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
        dlsym(driver, "cuGetProcAddress_v2"));
    for (const char* name : {"cuInit", "cuMemAlloc", "cuMemAlloc_v2", "cuNoSuchFunction", "", "cuGetProcAddress"}) {
        for (const int version : {0, 2000, 3020, 11030, 12000, 13000, 99000}) {
            for (const int flags : {0, 1, 2, 3, 64}) {
                int something = 0;
                void* function = &something;
                auto status = static_cast<CUdriverProcAddressQueryResult>(77);
                const int result = get(name, &function, version, static_cast<cuuint64_t>(flags), &status);
                std::printf("%s %d %d: %d status %d %s\n", name, version, flags, result, status,
                            function == nullptr      ? "null"
                            : function == &something ? "untouched"
                                                     : "a function");
            }
        }
    }
    void* function = nullptr;
    std::printf("nowhere %d, no name %d\n", get("cuInit", nullptr, 12000, 0, nullptr),
                get(nullptr, &function, 12000, 0, nullptr));
}

}  // namespace

// While another thread looks at the libraries, which ends when this one has found its function.
std::atomic<bool> looks{false}, has_found{false};
int look_long(dl_phdr_info*, std::size_t, void*) {
    looks = true;
    while (!has_found) std::this_thread::yield();
    return 1;
}
void beside_a_look() {
    std::thread other([] { dl_iterate_phdr(look_long, nullptr); });
    while (!looks) std::this_thread::yield();
    look("beside", RTLD_DEFAULT, "malloc");
    has_found = true;
    other.join();
}

// Other calls of libc leave the error as it was.
void errors_kept() {
    dlopen("/no/such/library.so", RTLD_NOW);
    struct sigaction action {};
    sigaction(SIGUSR1, &action, nullptr);
    std::printf("error %s\n", dlerror() != nullptr ? "kept" : "lost");
}

int main(int argc, char** argv) {
    if (argc < 6) {
        std::puts(
            "without_driver with_fake local_driver global_driver versioned versioned_default versioned_next "
            "hooked odd_questions beside_a_look errors_kept");
        return 0;
    }
    std::setvbuf(stdout, nullptr, _IONBF, 0);
    plain = std::strcmp(argv[1], "plain") == 0;
    fake = argv[3];
    versioned_driver = argv[4];
    hooks = argv[5];
    if (std::strcmp(argv[2], "without_driver") == 0) without_driver();
    if (std::strcmp(argv[2], "with_fake") == 0) with_fake();
    if (std::strcmp(argv[2], "local_driver") == 0) local_driver();
    if (std::strcmp(argv[2], "global_driver") == 0) global_driver();
    if (std::strcmp(argv[2], "versioned") == 0) versioned();
    if (std::strcmp(argv[2], "versioned_default") == 0) versioned_default();
    if (std::strcmp(argv[2], "versioned_next") == 0) versioned_next();
    if (std::strcmp(argv[2], "hooked") == 0) hooked();
    if (std::strcmp(argv[2], "odd_questions") == 0) odd_questions();
    if (std::strcmp(argv[2], "beside_a_look") == 0) beside_a_look();
    if (std::strcmp(argv[2], "errors_kept") == 0) errors_kept();
    std::puts("end");
    return 0;
}
