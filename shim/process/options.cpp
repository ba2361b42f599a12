// SPDX-License-Identifier: MIT
// Parsing of the environment.
#include "shim/process/options.h"

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "protocols/blocks.h"
#include "shim/transfer/staging.h"

namespace hpe {

bool parse_size(const char* text, std::size_t& bytes) {
    const char* end = text + std::strlen(text);
    std::size_t value = 0;
    const auto [rest, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || rest == text) return false;
    unsigned shift = 0;
    if (rest != end) {
        switch (*rest) {
            case 'k':
            case 'K': shift = 10; break;
            case 'm':
            case 'M': shift = 20; break;
            case 'g':
            case 'G': shift = 30; break;
            default: return false;
        }
        if (rest + 1 != end) return false;
    }
    if (value > (std::numeric_limits<std::size_t>::max() >> shift)) return false;
    bytes = value << shift;
    return true;
}

namespace {

bool Choice(const char* text, std::string& out) {
    for (const char* name : {"batch", "lazy", "rolling", "off"}) {
        if (std::strcmp(text, name) == 0) {
            out = name;
            return true;
        }
    }
    return false;
}

bool Size(const char* text, std::size_t& out) {
    constexpr std::size_t largest = std::size_t{1} << 30;
    out = 0;
    if (std::strcmp(text, "auto") == 0) return true;
    return parse_size(text, out) && out >= kPage && out <= largest && out % kPage == 0;
}

bool Count(const char* text, std::size_t& out) {
    out = 0;
    if (std::strcmp(text, "auto") == 0) return true;
    return parse_size(text, out) && out >= 1 && out <= 65535;
}

bool Switch(const char* text, bool& out) {
    out = std::strcmp(text, "on") == 0;
    return out || std::strcmp(text, "off") == 0;
}

bool Ways(const char* text, ipc::Ways& out) {
    out = ipc::Ways::All;
    if (std::strcmp(text, "off") == 0) out = ipc::Ways::HostMemory;
    if (std::strcmp(text, "none") == 0) out = ipc::Ways::None;
    return out != ipc::Ways::All || std::strcmp(text, "on") == 0;
}

bool Pinned(const char* text, std::size_t& out) {
    out = 0;
    if (std::strcmp(text, "auto") == 0) return true;
    return parse_size(text, out) && out >= std::size_t{1} << 20;
}

bool Threads(const char* text, unsigned& out) {
    out = staging::kAutomatic;
    if (std::strcmp(text, "auto") == 0) return true;
    std::size_t count = 0;
    if (!parse_size(text, count) || count > 64) return false;
    out = static_cast<unsigned>(count);
    return true;
}

bool Staging(const char* text, std::size_t& out) {
    return parse_size(text, out) && out >= kPage && out <= std::size_t{64} << 20 && out % kPage == 0;
}

bool Text(const char* text, std::string& out) {
    out = text;
    return true;
}

// Of a file: what goes to stderr elsewhere is no place for this.
bool Path(const char* text, std::string& out) {
    out = text;
    return out != "-";
}

// Those that mean nothing to libc, the kernel or libhpe.
bool Signal(const char* text, int& out) {
    out = 0;
    if (*text == '\0') return true;
    if (std::strcmp(text, "USR1") == 0) out = SIGUSR1;
    if (std::strcmp(text, "USR2") == 0) out = SIGUSR2;
    std::size_t number = 0;
    if (out == 0 && parse_size(text, number) && number >= 34 && number <= 64) out = static_cast<int>(number);
    return out != 0;
}

bool Level(const char* text, log::Level& out) {
    constexpr const char* names[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; ++i) {
        if (std::strcmp(text, names[i]) == 0) {
            out = static_cast<log::Level>(i);
            return true;
        }
    }
    return false;
}

}  // namespace

bool parse_options(Options& out, std::string& problem) {
    // An empty variable counts as not set: scripts clear options that way.
#define OPTION(kind, member, variable, fallback, accepted, meaning)                             \
    {                                                                                           \
        const char* set = std::getenv(variable);                                                \
        const bool given = set != nullptr && *set != '\0';                                      \
        if (!kind(given ? set : fallback, out.member)) {                                        \
            problem = fmt::format("{}={} is not valid; accepted: {}", variable, set, accepted); \
            return false;                                                                       \
        }                                                                                       \
    }
#include "shim/process/options.inc"
#undef OPTION
    return true;
}

std::string describe_options() {
    std::string text;
#define OPTION(kind, member, variable, fallback, accepted, meaning)                                       \
    text += fmt::format("{:<20} {}\n{:<20} accepted: {}; default: {}\n", variable, meaning, "", accepted, \
                        *fallback == '\0' ? "not set" : fallback);
#include "shim/process/options.inc"
#undef OPTION
    return text;
}

}  // namespace hpe
