// SPDX-License-Identifier: MIT
// Asking the kernel.
#include "shim/base/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel_file.h"

namespace hpe::machine {

std::size_t physical_memory() noexcept {
    struct sysinfo info {};
    return sysinfo(&info) == 0 ? std::size_t{info.totalram} * info.mem_unit : std::size_t{1} << 30;
}

namespace {

// "0-3,8": adds what it names to the set. False: it is no such list.
bool add_list(const char* text, cpu_set_t& set) noexcept {
    while (std::isdigit(static_cast<unsigned char>(*text)) != 0) {
        char* end = nullptr;
        const unsigned long first = std::strtoul(text, &end, 10);
        unsigned long last = first;
        if (*end == '-') last = std::strtoul(end + 1, &end, 10);
        for (auto i = first; i <= last && i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
        if (*end != ',') return *end == '\n' || *end == 0;
        text = end + 1;
    }
    return false;
}

bool local_processors(const char* device, cpu_set_t& near, const char* devices) noexcept {
    char path[256], text[4096];
    if (std::snprintf(path, sizeof path, "%s/%s/local_cpulist", devices, device) >= static_cast<int>(sizeof path)) {
        return false;
    }
    // sysfs names devices in small letters.
    for (char* c = path + std::char_traits<char>::length(devices); *c != 0; ++c) {
        *c = static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    const auto length = kernel::File(path).read(text, sizeof text - 1);
    if (length <= 0) return false;
    text[length] = 0;
    cpu_set_t local, mine;
    CPU_ZERO(&local);
    if (!add_list(text, local) || sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
    CPU_AND(&near, &local, &mine);
    return CPU_COUNT(&near) != 0 && !CPU_EQUAL(&near, &mine);
}

}  // namespace

bool processors_near(const char* device, cpu_set_t& near, const char* devices) noexcept {
    const ErrnoKept kept;
    return local_processors(device, near, devices);
}

unsigned processors() noexcept {
    cpu_set_t mask;
    const ErrnoKept kept;
    // Fails where the machine has more processors than the mask has bits; then there are enough.
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return CPU_SETSIZE;
    return static_cast<unsigned>(std::max(CPU_COUNT(&mask), 1));
}

}  // namespace hpe::machine
