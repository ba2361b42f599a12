// SPDX-License-Identifier: MIT
// Doors of calls on mappings that meet pages which libhpe has closed (observe/unread.h): a protection is the
// program's own from there on, and memory to be locked is accessed by the kernel.
//
// Handled: mprotect, pkey_mprotect, mlock and mlock2. No door stands in front of mmap, munmap, mremap and madvise: UCX
// and Open MPI rewrite these functions where they find them, to see what free unmaps, and must find libc's own. None is
// needed: what was unmapped is told by malloc's header, and what madvise has emptied is opened by the next access.
#include <sys/mman.h>

#include "shim/doors/libc_door.h"
#include "shim/observe/unread.h"

using hpe::Next;

namespace {

constinit Next<int(void*, std::size_t, int)> next_mprotect{"mprotect"};
constinit Next<int(void*, std::size_t, int, int)> next_pkey_mprotect{"pkey_mprotect"};
constinit Next<int(const void*, std::size_t)> next_mlock{"mlock"};
constinit Next<int(const void*, std::size_t, unsigned)> next_mlock2{"mlock2"};

}  // namespace

extern "C" {

HPE_DOOR int mprotect(void* at, std::size_t bytes, int protection) noexcept {
    hpe::unread::open(at, bytes);
    return next_mprotect(at, bytes, protection);
}
HPE_DOOR int pkey_mprotect(void* at, std::size_t bytes, int protection, int key) noexcept {
    hpe::unread::open(at, bytes);
    return next_pkey_mprotect(at, bytes, protection, key);
}
HPE_DOOR int mlock(const void* at, std::size_t bytes) noexcept {
    hpe::unread::open(at, bytes);
    return next_mlock(at, bytes);
}
HPE_DOOR int mlock2(const void* at, std::size_t bytes, unsigned flags) noexcept {
    hpe::unread::open(at, bytes);
    return next_mlock2(at, bytes, flags);
}

}  // extern "C"
