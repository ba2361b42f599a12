// SPDX-License-Identifier: MIT
// Names, bytes and strings of what is written at exit.
#include "shim/observe/output.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <iterator>

#include "shim/base/log.h"
#include "shim/base/quiet_write.h"

namespace hpe {

namespace {

// Bytes of the character that the text begins with; 0 where that is none in UTF-8 (Unicode Standard, table 3-7: what is
// longer than it need be, surrogates and what lies beyond U+10FFFF show in the second byte).
std::size_t length_of_character(std::string_view text) noexcept {
    const auto within = [&](std::size_t at, unsigned low, unsigned high) {
        const auto byte = at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
        return low <= byte && byte <= high;
    };
    const auto lead = static_cast<unsigned char>(text.front());
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (!within(1, low, high)) return 0;
    for (std::size_t at = 2; at < length; ++at) {
        if (!within(at, 0x80, 0xBF)) return 0;
    }
    return length;
}

}  // namespace

std::string path_of_program() {
    char path[PATH_MAX];
    const auto length = readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

std::string rank_of_process() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        const char* const text = std::getenv(name);
        if (text == nullptr || *text == '\0') continue;
        const std::string_view rank(text);
        if (rank.find_first_not_of("0123456789") == rank.npos && rank.size() < 10) return std::string(rank);
    }
    return {};
}

std::string from_this_folder(std::string destination) {
    char folder[PATH_MAX];
    if (destination.empty() || destination == "-" || destination.front() == '/') return destination;
    return getcwd(folder, sizeof folder) != nullptr ? std::string(folder) + '/' + destination : destination;
}

std::string path_of_output(std::string destination) {
    const auto process = std::to_string(getpid());
    auto rank = rank_of_process();
    if (rank.empty()) rank = "0";
    for (std::size_t at = 0; (at = destination.find('%', at)) != std::string::npos;) {
        const char what = at + 1 < destination.size() ? destination[at + 1] : '\0';
        if (what != 'p' && what != 'r') {
            ++at;
            continue;
        }
        const auto& text = what == 'p' ? process : rank;
        destination.replace(at, 2, text);
        at += text.size();
    }
    return destination;
}

int open_output(const std::string& path) noexcept {
    // A pipe of that name that nobody reads is an error, not a reason for the process never to end.
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd >= 0) fcntl(fd, F_SETFL, O_WRONLY);
    return fd;
}

bool write_all(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const iovec rest{const_cast<char*>(text.data()), text.size()};
        const auto n = quiet_writev(fd, &rest, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

std::string json_text(std::string_view text) {
    if (text.empty()) return "null";
    std::string out = "\"";
    while (!text.empty()) {
        const auto length = length_of_character(text);
        const char c = text.front();
        if (length == 0) {
            out += "\\ufffd";
        } else if (static_cast<unsigned char>(c) < 0x20) {
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
            if (c == '"' || c == '\\') out += '\\';
            out += text.substr(0, length);
        }
        text.remove_prefix(length != 0 ? length : 1);
    }
    return out += '"';
}

std::string demangled(const char* symbol) {
    int status = 0;
    char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = status == 0 && text != nullptr ? text : symbol;
    std::free(text);
    return name;
}

}  // namespace hpe
