// SPDX-License-Identifier: MIT
// Which instructions of the program caused the faults, for the report: a fixed table, filled by the fault path with the
// address of the instruction that trapped, and turned into modules and names at exit.
//
// dladdr and not an unwinder: the fault path may neither allocate nor take the loader's lock, which unwinding does, and
// what it would find above the trapping instruction is of use only where every caller has unwind tables. So a site is
// the access itself; inside memcpy it is memcpy's.
//
// Units: faults; bytes fetched to serve them. Threads: note() from any, also inside the fault path (atomics only, no
// allocation); the others outside it. Errors: none; what does not fit into the table is counted together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hpe::call_sites {

// From here on sites are noted. Before, note() costs one load.
void enable() noexcept;

void note(std::uintptr_t instruction, std::size_t bytes_to_host) noexcept;

struct Site {
    std::uintptr_t address = 0;
    std::uint64_t faults = 0;
    std::uint64_t bytes_to_host = 0;
    std::string module;         // path; "" if the code is no longer loaded
    std::uintptr_t offset = 0;  // address as in the module's file: what `addr2line -e module` takes
    std::string symbol;         // "" if the module exports none there
};

struct Most {
    std::vector<Site> sites;             // by bytes, then by faults; the most first
    std::uint64_t faults_elsewhere = 0;  // at sites that are not among them
};
Most most(std::size_t limit);

}  // namespace hpe::call_sites
