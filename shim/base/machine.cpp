// SPDX-License-Identifier: MIT
// Asking the kernel.
#include "shim/base/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>

namespace hpe::machine {

std::size_t physical_memory() noexcept {
    struct sysinfo info {};
    return sysinfo(&info) == 0 ? std::size_t{info.totalram} * info.mem_unit : std::size_t{1} << 30;
}

unsigned processors() noexcept {
    cpu_set_t mask;
    // Fails where the machine has more processors than the mask has bits; then there are enough.
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return CPU_SETSIZE;
    return static_cast<unsigned>(std::max(CPU_COUNT(&mask), 1));
}

}  // namespace hpe::machine
