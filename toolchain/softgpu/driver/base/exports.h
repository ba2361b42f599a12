// SPDX-License-Identifier: MIT
// The generated tables: what is exported, and what each driver function is called (CUDA Driver API, "Driver Entry Point
// Access").
//
// Constant: any thread, no owner, no errors.
#pragma once

namespace hpe::soft {

struct Export {
    const char* base;  // what cuGetProcAddress is asked for
    int version;       // first CUDA version with this ABI
    bool per_thread;   // the _ptds or _ptsz flavour
    void* address;
};

extern const Export exports[];
extern const unsigned export_count;
extern const char* const function_names[];  // indexed by Function
extern const bool function_always[];        // served without an initialised driver

}  // namespace hpe::soft
