// SPDX-License-Identifier: MIT
// What the machine gives this process: memory and processors.
// Threads: any; no allocation; errno is kept. Errors: none; where the kernel does not say, a cautious value.
#pragma once

#include <sched.h>

#include <cstddef>

namespace hpe::machine {

// Bytes.
std::size_t physical_memory() noexcept;
// Processors that this process may run on (its affinity mask), at least 1.
unsigned processors() noexcept;
// Those of them that are near a PCI device ("0000:65:00.0"), by the kernel's local_cpulist. False: the kernel does not
// say, or says that none or all of them are near.
bool processors_near(const char* device, cpu_set_t& near, const char* devices = "/sys/bus/pci/devices") noexcept;

}  // namespace hpe::machine
