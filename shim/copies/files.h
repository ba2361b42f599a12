// SPDX-License-Identifier: MIT
// Large reads and writes of regular files whose memory lies on the device: file and device meet in bounce buffers, and
// the object gets no host copy. Nothing is done where staging has not earned its price yet (break_even.h).
//
// Source: ADSM/GMAC paper section 4.4 (interposed I/O calls).
//
// Bytes; the memory and the file are the program's. Threads: any; they wait for device work as an access would. Errors:
// none; what could not be done is left to the caller, and how much was done is returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/copies/bulk.h"
#include "shim/transfer/staging.h"

namespace hpe::files {

// `stretch` is one for the device, and lies at `at` (bulk::next). Reads to the device what is at hand of the file, in
// the page cache.
std::size_t read(std::uintptr_t at, const bulk::Stretch& stretch, const copiers::File& file) noexcept;
// The device brings the stretch's bytes, and the sink takes them.
std::size_t write(std::uintptr_t at, const bulk::Stretch& stretch, staging::Sink& sink) noexcept;

}  // namespace hpe::files
