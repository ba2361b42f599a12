// SPDX-License-Identifier: MIT
// The memory behind shadows, in a process that locks what it maps.
#include "shim/memory/arena.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "tests/unit/catch.h"

namespace {

// Of this process, in pages.
std::size_t resident() {
    std::size_t all = 0, there = 0;
    std::ifstream("/proc/self/statm") >> all >> there;
    return there;
}

// The exit status of a child that runs `body`: what it locks ends with it.
template <class Body>
int in_a_child(Body&& body) {
    const auto child = fork();
    if (child == 0) _exit(body());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("locked memory is not filled before it is used") {
    constexpr int kNotAllowed = 77;
    const int status = in_a_child([] {
        if (mlockall(MCL_FUTURE) != 0) return kNotAllowed;
        hpe::Arena arena;
        const auto before = resident();
        auto* const range = arena.take(8192);
        if (range == nullptr) return kNotAllowed;  // more than may be locked
        std::memset(range, 1, 8192);
        const auto pages = resident() - before;
        return pages < 4096 ? 0 : 1;
    });
    if (status == kNotAllowed) return;
    CHECK(status == 0);
}
