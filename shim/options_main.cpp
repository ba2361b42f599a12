// SPDX-License-Identifier: MIT
// What `hpe env` runs: prints the options from the table that the library parses.
#include <cstdio>

#include "shim/process/options.h"

int main() {
    std::fputs(hpe::describe_options().c_str(), stdout);
    return 0;
}
