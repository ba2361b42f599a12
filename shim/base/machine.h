// SPDX-License-Identifier: MIT
// What the machine gives this process: memory and processors.
// Threads: any; no allocation; errno is kept. Errors: none; where the kernel does not say, a cautious value.
#pragma once

#include <sched.h>

#include <cstddef>

namespace hpe::machine {

// Bytes.
std::size_t physical_memory() noexcept;
// That this process may run on (its affinity mask), at least 1.
unsigned processors() noexcept;
// Those of them that are near a PCI device ("0000:65:00.0"), as the kernel says in local_cpulist. False: it does not
// say, or says that none or all of them are.
bool processors_near(const char* device, cpu_set_t& near, const char* devices = "/sys/bus/pci/devices") noexcept;

}  // namespace hpe::machine
