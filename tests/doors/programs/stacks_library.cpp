// SPDX-License-Identifier: MIT
// A library that tells the program when its constructor runs, and reads memory that may trap.
extern "C" void constructor_of_library();
__attribute__((constructor)) static void begin() { constructor_of_library(); }

extern "C" unsigned read_in_library(const unsigned* from) { return *static_cast<const volatile unsigned*>(from); }
