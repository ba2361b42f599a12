// SPDX-License-Identifier: MIT
// Protocols by name.
#include "protocols/protocol.h"

#include "protocols/rolling.h"
#include "protocols/transitions.h"

namespace hpe {

Protocol* make_protocol(std::string_view name, std::size_t rolling_size) {
    if (name == "batch") return new Protocol(kBatch);
    if (name == "lazy") return new Protocol(kWriteInvalidate);
    if (name == "rolling") return new Rolling(rolling_size);
    return nullptr;
}

}  // namespace hpe
