// SPDX-License-Identifier: MIT
// The one place that writes messages.
#include "shim/base/log.h"

#include <unistd.h>

#include "shim/base/quiet_write.h"

namespace hpe::log {

void write_line(std::string_view text) noexcept {
    char prefix[] = "hpe: ";
    char newline[] = "\n";
    iovec parts[] = {{prefix, sizeof prefix - 1}, {const_cast<char*>(text.data()), text.size()}, {newline, 1}};
    // One call, so that lines of several threads and processes do not mix. Nothing can be done if it fails.
    [[maybe_unused]] const auto written = quiet_writev(STDERR_FILENO, parts, 3);
}

}  // namespace hpe::log
