// SPDX-License-Identifier: MIT
// Files that are read by system calls of our own (kernel.h), and the mappings of this process among them.
//
// Threads: each file for one at a time; async-signal-safe. Errors: a negative errno for bytes; errno is kept. Of a file
// that could not be opened no byte can be read.
#pragma once

#include <fcntl.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "shim/base/kernel.h"

namespace hpe::kernel {

class File {
public:
    explicit File(const char* path) noexcept
        : file_(static_cast<int>(raw(SYS_openat, AT_FDCWD, word(path), O_RDONLY | O_CLOEXEC))) {}
    ~File() {
        if (file_ >= 0) raw(SYS_close, file_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    explicit operator bool() const noexcept { return file_ >= 0; }
    // The next bytes; 0 at the end.
    long read(void* to, std::size_t bytes) const noexcept { return raw(SYS_read, file_, word(to), word(bytes)); }
    long read_at(std::size_t offset, void* to, std::size_t bytes) const noexcept {
        return raw(SYS_pread64, file_, word(to), word(bytes), word(offset));
    }

private:
    const int file_;
};

// Calls look(begin, end, rest) for the mappings, by their addresses, until one returns true. `rest`: the line from the
// blank in front of the permissions on (proc(5), /proc/pid/maps).
template <class Look>
void look_at_mappings(Look&& look) noexcept {
    const File file("/proc/self/maps");
    std::array<char, 8192> text;  // no line is that long
    std::size_t kept = 0;
    for (long got = 0; (got = file.read(text.data() + kept, text.size() - kept)) > 0;) {
        std::string_view all(text.data(), kept + static_cast<std::size_t>(got));
        for (std::size_t length = 0; (length = all.find('\n')) != all.npos; all.remove_prefix(length + 1)) {
            std::uintptr_t begin = 0, end = 0;
            const auto line = all.substr(0, length);
            const auto* const stop = line.data() + length;
            const auto* const dash = std::from_chars(line.data(), stop, begin, 16).ptr;
            if (dash == stop) continue;
            const auto* const blank = std::from_chars(dash + 1, stop, end, 16).ptr;
            if (look(begin, end, std::string_view(blank, static_cast<std::size_t>(stop - blank)))) return;
        }
        kept = all.size();
        std::memmove(text.data(), all.data(), kept);
    }
}

}  // namespace hpe::kernel
