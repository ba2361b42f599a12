// SPDX-License-Identifier: MIT
// The memory behind shadows: where it lies, and in a process that locks what it maps.
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
        auto* const range = arena.take(0, 8192);
        if (range == nullptr) return kNotAllowed;  // more than may be locked
        std::memset(range, 1, 8192);
        const auto pages = resident() - before;
        return pages < 4096 ? 0 : 1;
    });
    if (status == kNotAllowed) return;
    CHECK(status == 0);
}

TEST_CASE("what lies side by side on the device lies so in the arena") {
    constexpr std::uintptr_t kDevice = 0x7f0000000000;
    constexpr std::size_t kPage = 4096;
    hpe::Arena arena;
    auto* const third = arena.take(kDevice + 3 * kPage, kPage);
    auto* const first = arena.take(kDevice + kPage, 2 * kPage);
    REQUIRE(first != nullptr);
    CHECK(first + 2 * kPage == third);
    // What reaches out of its chunk of the device lies elsewhere, and nothing lies in two places.
    auto* const border = arena.take(kDevice + hpe::Arena::kChunk - kPage, 2 * kPage);
    auto* const other = arena.take(kDevice + hpe::Arena::kChunk + 4 * kPage, kPage);
    CHECK(reinterpret_cast<std::uintptr_t>(other) % hpe::Arena::kChunk == 4 * kPage);
    for (auto* range : {border, border + kPage, other}) CHECK((range < first - kPage || range >= third + kPage));
    // The chunk stays until the last is given back.
    arena.give_back(first, kDevice + kPage, 2 * kPage, true);
    CHECK(arena.take(kDevice + 4 * kPage, kPage) == third + kPage);
    arena.give_back(third, kDevice + 3 * kPage, kPage, false);
    arena.give_back(third + kPage, kDevice + 4 * kPage, kPage, false);
    arena.give_back(border, kDevice + hpe::Arena::kChunk - kPage, 2 * kPage, false);
    arena.give_back(other, kDevice + hpe::Arena::kChunk + 4 * kPage, kPage, false);
    auto* const whole = arena.take(kDevice, hpe::Arena::kChunk);
    CHECK(whole != nullptr);
    arena.give_back(whole, kDevice, hpe::Arena::kChunk, false);
}

TEST_CASE("the arena leaves the driver the addresses that it would have without") {
    hpe::Arena arena;
    const auto next_mapping = [](std::size_t bytes) {
        auto* const next = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(next, bytes);
        return static_cast<std::byte*>(next);
    };
    constexpr std::size_t kLarge = std::size_t{64} << 20;
    auto* const without = next_mapping(kLarge);
    auto* const range = arena.take(0, 4 * hpe::Arena::kChunk);
    auto* const another = arena.take(0, std::size_t{2} << 30);  // a segment of its own
    REQUIRE(range != nullptr);
    REQUIRE(another != nullptr);
    CHECK(next_mapping(kLarge) == without);
    arena.give_back(range, 0, 4 * hpe::Arena::kChunk, false);
    arena.give_back(another, 0, std::size_t{2} << 30, false);
}
