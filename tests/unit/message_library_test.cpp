// SPDX-License-Identifier: MIT
// What lies where the library lay, when that has been unloaded, is no such library.
#include "shim/driver/message_library.h"

#include <cstdint>

#include "tests/unit/catch.h"

TEST_CASE("code at the library's addresses is taken for it by the name of its file, too") {
    const auto* const code = reinterpret_cast<const void*>(&hpe::message_library::holds);
    const auto at = reinterpret_cast<std::uintptr_t>(code);
    CHECK_FALSE(hpe::message_library::holds(code));
    hpe::message_library::lies_at(at - 4096, at + 4096);
    CHECK_FALSE(hpe::message_library::holds(code));
}
