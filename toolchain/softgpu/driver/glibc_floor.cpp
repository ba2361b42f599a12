// SPDX-License-Identifier: MIT
// Keeps the library loadable on glibc 2.34: the C++ runtime that is linked in would otherwise bring in newer symbols.

// libgcc's unwinder asks this of glibc 2.35 and later. "Not found" makes it walk dl_iterate_phdr, as on older ones.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void*, void*);
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void*, void*) { return -1; }
