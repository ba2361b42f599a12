// SPDX-License-Identifier: MIT
// A library by the name of one that writes jumps over the driver's functions (UCX's libucm): what it finds must be the
// driver's own code.
#include <dlfcn.h>

// The file name of the library whose function a search finds; nullptr: none is found.
extern "C" const char* hooks_owner(void* handle, const char* name) {
    const void* const found = dlsym(handle, name);
    Dl_info info{};
    return found != nullptr && dladdr(found, &info) != 0 ? info.dli_fname : nullptr;
}
// As above, for what comes behind this library.
extern "C" const char* hooks_owner_behind(const char* name) { return hooks_owner(RTLD_NEXT, name); }
