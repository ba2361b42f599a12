// SPDX-License-Identifier: MIT
// Finds the function behind one of our doors without dlsym or dlvsym, since both are doors: the first definition in a
// library that was loaded after this one, out of the libraries' own symbol tables (loaded_library.h). It thus finds
// what RTLD_NEXT would.
//
// Sanitizers look symbols up before their own functions work, and theirs stand in front of libc's: so the loader's list
// is read directly (_r_debug of <link.h>, as debuggers do), and no function of libc is called.
//
// The pointer belongs to its library. Several versions of a symbol count as one. Threads: any, before any constructor
// too; takes no lock. For functions that libc defines: behind libc the list may change meanwhile. Errors: nullptr where
// there is none.
#pragma once

namespace hpe {

void* next_function(const char* name) noexcept;

}  // namespace hpe
