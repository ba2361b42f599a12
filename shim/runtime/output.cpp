// SPDX-License-Identifier: MIT
// Names, bytes and strings of what is written at exit.
#include "shim/runtime/output.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>

#include "shim/base/log.h"

namespace hpe {

std::string path_of_output(std::string destination) {
    if (const auto at = destination.find("%p"); at != std::string::npos) {
        destination.replace(at, 2, std::to_string(getpid()));
    }
    return destination;
}

int open_output(const std::string& path) noexcept {
    return open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

bool write_all(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const auto n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

void append_json_text(std::string& out, std::string_view text) {
    if (text.empty()) {
        out += "null";
        return;
    }
    out += '"';
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
            out += c;
        }
    }
    out += '"';
}

std::string demangled(const char* symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = status == 0 && text != nullptr ? text : symbol;
    std::free(text);
    return name;
}

}  // namespace hpe
