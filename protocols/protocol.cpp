// SPDX-License-Identifier: MIT
// Protocols by name.
#include "protocols/protocol.h"

#include "protocols/batch.h"
#include "protocols/lazy.h"
#include "protocols/rolling.h"

namespace hpe {

Protocol* make_protocol(std::string_view name, std::size_t rolling_size) {
    if (name == "batch") return new Batch;
    if (name == "lazy") return new Lazy;
    if (name == "rolling") return new Rolling(rolling_size);
    return nullptr;
}

}  // namespace hpe
