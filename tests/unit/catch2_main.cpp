// SPDX-License-Identifier: MIT
// The main function of unit tests where Catch2 is version 2 and does not bring one.
#define CATCH_CONFIG_MAIN
#include "tests/unit/catch.h"
