// SPDX-License-Identifier: MIT
// Which processors are near a device, as the kernel would tell.
#include "shim/base/machine.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

// A folder like /sys/bus/pci/devices with one device.
struct Devices {
    std::filesystem::path folder = std::filesystem::temp_directory_path() / ("hpe-machine-" + std::to_string(getpid()));
    explicit Devices(const std::string& list) {
        std::filesystem::create_directories(folder / "0000:6a:00.0");
        std::ofstream(folder / "0000:6a:00.0" / "local_cpulist") << list;
    }
    ~Devices() { std::filesystem::remove_all(folder); }
    Devices(const Devices&) = delete;
    Devices& operator=(const Devices&) = delete;
    bool near(cpu_set_t& set, const char* device = "0000:6a:00.0") const {
        return machine::processors_near(device, set, folder.c_str());
    }
};

}  // namespace

TEST_CASE("the processors near a device are those of the process that the kernel names") {
    cpu_set_t mine, near;
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &mine)) ++first;
    const auto one = std::to_string(first);
    if (CPU_COUNT(&mine) > 1) {
        for (const auto& list :
             {one + "\n", one, one + "," + std::to_string(CPU_SETSIZE - 1) + "\n", one + "-" + one}) {
            INFO(list);
            CHECK(Devices(list).near(near));
            CHECK(CPU_COUNT(&near) == 1);
            CHECK(CPU_ISSET(first, &near));
        }
        CHECK(Devices(one).near(near, "0000:6A:00.0"));
    }
    // All, none, and what is no list.
    for (const auto& list : {std::string("0-1023\n"), std::string("0-99999999\n"), std::string("\n"), std::string(),
                             std::to_string(CPU_SETSIZE - 1), std::string("none"), one + ",x", one + " 7"}) {
        INFO(list);
        CHECK_FALSE(Devices(list).near(near));
    }
    CHECK_FALSE(Devices(one).near(near, "0000:6b:00.0"));
    CHECK_FALSE(Devices(one).near(near, ""));
    CHECK_FALSE(Devices(one).near(near, std::string(300, 'a').c_str()));
}
