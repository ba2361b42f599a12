// SPDX-License-Identifier: MIT
// A library by the name of one that writes jumps over the driver's functions (UCX's libucm): what it finds must be the
// driver's own code. By it a program calls the driver unseen.
#include <dlfcn.h>

// The file name of the library whose function a search finds; nullptr: none is found.
extern "C" const char* hooks_owner(void* handle, const char* name) {
    const void* const found = dlsym(handle, name);
    Dl_info info{};
    return found != nullptr && dladdr(found, &info) != 0 ? info.dli_fname : nullptr;
}
// The function itself. No tail call: the search is this library's.
extern "C" void* hooks_find(void* handle, const char* name) {
    void* volatile const found = dlsym(handle, name);
    return found;
}
// As hooks_owner, for what comes behind this library.
extern "C" const char* hooks_owner_behind(const char* name) { return hooks_owner(RTLD_NEXT, name); }
