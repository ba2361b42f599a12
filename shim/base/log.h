// SPDX-License-Identifier: MIT
// One line per message on stderr, prefix "hpe:". Allocation-free and async-signal-safe: formats into the stack and
// writes with one writev(2), so that it may be called from the fault path.
//
// Threads: any. errno is kept. Errors: none are told; a line longer than 512 bytes is cut.
#pragma once

#include <unistd.h>

#include <atomic>
#include <string_view>

#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include "shim/base/errno_kept.h"

namespace hpe::log {

enum class Level : int { Error, Warn, Info, Debug };

inline constinit std::atomic<Level> threshold{Level::Warn};

inline bool enabled(Level level) noexcept { return level <= threshold.load(std::memory_order_relaxed); }

void write_line(std::string_view text) noexcept;

template <class... Args>
void line(Level level, fmt::format_string<Args...> format, Args&&... args) noexcept {
    if (!enabled(level)) return;
    const ErrnoKept kept;
    char text[512];
    const auto end = fmt::format_to_n(text, sizeof text, format, std::forward<Args>(args)...);
    write_line({text, end.size < sizeof text ? end.size : sizeof text});
}

template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) noexcept {
    line(Level::Error, format, std::forward<Args>(args)...);
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
    line(Level::Warn, format, std::forward<Args>(args)...);
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) noexcept {
    line(Level::Info, format, std::forward<Args>(args)...);
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) noexcept {
    line(Level::Debug, format, std::forward<Args>(args)...);
}

}  // namespace hpe::log
