// SPDX-License-Identifier: MIT
// How many more mappings the kernel gives this process (vm.max_map_count, 65530 unless the administrator says
// otherwise). libhpe leaves the last eighth to the program, the driver and libc, which fail or abort without: at that
// point the host copies of other objects are unmapped, and mapped anew when they are touched.
//
// What there is cannot be asked cheaply: the lines of /proc/self/maps are counted, some 30 ms for as many as there may
// be, but only after as many changes as could have used up what was left by the count before.
//
// Threads: any, also inside the fault path (system calls only). Errors: none; where nothing can be read, Linux'
// default is taken to be the limit, and nothing to be scarce.
#pragma once

#include <cerrno>

namespace hpe::mappings {

// A range was mapped, unmapped or given another protection.
void changed() noexcept;

// Whether the rest of what the process may have should be left alone.
bool scarce() noexcept;

// The kernel has just refused a change for lack of mappings (the program took the rest itself): a few that are held in
// reserve are given up, so that a second try succeeds, and the next scarce() counts. The reserve is made again when
// mappings are not scarce.
void refused() noexcept;

// Calls step(), which changes mappings; again with the reserve where it returns false and errno is ENOMEM.
template <class Step>
bool with_reserve(Step&& step) noexcept {
    changed();
    if (step()) return true;
    if (errno != ENOMEM) return false;
    refused();
    return step();
}

}  // namespace hpe::mappings
