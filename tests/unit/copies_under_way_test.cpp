// SPDX-License-Identifier: MIT
// A sender's wait for the devices that read its memory.
#include "shim/ipc/copies_under_way.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "tests/unit/catch.h"

using hpe::ipc::ExportTable;

namespace {

void read(ExportTable& table, std::size_t place, std::int64_t process, std::uint32_t begun, std::uint32_t ended) {
    table.readers[place].process = process;
    table.readers[place].begun = begun;
    table.readers[place].ended = ended;
}

}  // namespace

TEST_CASE("a sender waits until all copies that were begun have ended, also where the numbers wrap around") {
    const auto table = std::make_unique<ExportTable>();
    for (const std::uint32_t before : {0u, 0xFFFFFFFEu, 0x7FFFFFFFu}) {
        const std::uint32_t after = before + 3;
        read(*table, 0, getpid(), 7, 7);
        read(*table, 1, getpid(), after, before);
        std::atomic<bool> waits{false};
        std::thread device([&] {
            while (!waits) std::this_thread::yield();
            while (table->readers[1].ended != after) {
                for (int i = 0; i < 1000; ++i) std::this_thread::yield();
                ++table->readers[1].ended;
            }
        });
        waits = true;
        hpe::ipc::wait_for_readers(*table);
        CHECK(table->readers[1].ended == after);
        device.join();
    }
}

TEST_CASE("a process that is gone reads no more") {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    const auto table = std::make_unique<ExportTable>();
    read(*table, 0, child, 9, 4);
    hpe::ipc::wait_for_readers(*table);
    CHECK(table->readers[0].ended == 9);
}
