// SPDX-License-Identifier: MIT
// main() of the test programs, which version 3 of Catch2 brings along.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#endif
#include "tests/unit/catch.h"
