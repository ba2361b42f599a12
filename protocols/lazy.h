// SPDX-License-Identifier: MIT
// Lazy-update (ADSM/GMAC paper section 4.3): whole objects, moved when touched.
// Units, ownership, threads and errors: Protocol.
#pragma once

#include "protocols/protocol.h"
#include "protocols/transitions.h"

namespace hpe {

class Lazy final : public Protocol {
public:
    std::string_view name() const noexcept override { return "lazy"; }
    const TransitionTable& transitions() const noexcept override { return kWriteInvalidate; }
    std::size_t block_bytes(std::size_t object_bytes, std::size_t) const noexcept override { return object_bytes; }
};

}  // namespace hpe
