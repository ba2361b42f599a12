// SPDX-License-Identifier: MIT
// What lies behind this program, found without dlsym: the same that dlsym finds.
#include <dlfcn.h>

#include "shim/base/next_function.h"
#include "tests/unit/catch.h"

using hpe::next_function;

// A program's own definition is not behind it.
extern "C" int getppid() noexcept { return -5; }

TEST_CASE("finds what RTLD_NEXT finds") {
    for (const char* name : {"dlsym", "dlvsym", "malloc", "write", "getppid", "pthread_sigmask"}) {
        CAPTURE(name);
        REQUIRE(next_function(name) != nullptr);
        CHECK(next_function(name) == dlsym(RTLD_NEXT, name));
    }
    CHECK(next_function("getppid") != reinterpret_cast<void*>(&getppid));
}

TEST_CASE("finds nothing where there is nothing") {
    // Not there, only a part, no function (a variable), defined only in this program.
    for (const char* name : {"no_such_function", "dlsy", "", "environ", "main"}) {
        CAPTURE(name);
        CHECK(next_function(name) == nullptr);
    }
}
