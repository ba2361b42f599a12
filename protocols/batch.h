// SPDX-License-Identifier: MIT
// Batch-update (ADSM/GMAC paper section 4.3): whole objects, both ways, at every launch and every wait.
// Units, ownership, threads and errors: Protocol.
#pragma once

#include "protocols/protocol.h"
#include "protocols/transitions.h"

namespace hpe {

class Batch final : public Protocol {
public:
    std::string_view name() const noexcept override { return "batch"; }
    const TransitionTable& transitions() const noexcept override { return kBatch; }
    std::size_t block_bytes(std::size_t object_bytes, std::size_t) const noexcept override { return object_bytes; }
};

}  // namespace hpe
