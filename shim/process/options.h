// SPDX-License-Identifier: MIT
// The options a user sets in the environment (options.inc). Parsed once, at the first use of CUDA.
// Threads: one, before any other work of the library.
#pragma once

#include <cstddef>
#include <string>

#include "shim/base/log.h"
#include "shim/ipc/exports.h"

namespace hpe {

struct Options {
    std::string protocol;          // "off": the library does nothing
    std::size_t block_size = 0;    // bytes; 0: adaptive
    std::size_t rolling_size = 0;  // blocks; 0: adaptive
    bool read_ahead = true;
    bool mpi = true;
    ipc::Ways mpi_ipc = ipc::Ways::All;
    std::string report;  // "": none
    bool stacks = true;
    bool unread = false;
    int progress_signal = 0;  // 0: none
    std::string trace;        // likewise
    log::Level log = log::Level::Warn;
    std::size_t pinned_limit = 0;   // bytes; 0: a share of the machine's memory
    unsigned staging_threads = 0;   // or staging::kAutomatic
    std::size_t staging_block = 0;  // bytes
};

// Reads the environment. On a bad value returns false with one line in `problem`: variable, value, what is accepted.
bool parse_options(Options& out, std::string& problem);

// "64K" to bytes. Accepts K, M and G (powers of 1024). False on anything else.
bool parse_size(const char* text, std::size_t& bytes);

// The table of options as `hpe env` prints it.
std::string describe_options();

}  // namespace hpe
