// SPDX-License-Identifier: MIT
// The loops over pieces.

// pread and pread64 are two names here (libc_files.cpp).
#undef _FILE_OFFSET_BITS

#include "shim/doors/libc_file_pieces.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "shim/base/address.h"
#include "shim/base/kernel.h"
#include "shim/copies/files.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/libc_transfers.h"

namespace hpe::doors::pieces {

namespace {

constinit Next<ssize_t(int, void*, std::size_t, off64_t)> next_pread{"pread64"};
constinit Next<ssize_t(int, const void*, std::size_t, off64_t)> next_pwrite{"pwrite64"};

// O_DIRECT takes only what is aligned, to the page at most.
bool in_pieces(long flags, const void* at, std::size_t bytes, off64_t offset) noexcept {
    if (bytes <= kSmallest || offset < 0 || !lease::in_one_object(at, bytes)) return false;
    return (flags & O_DIRECT) == 0 || (address(at) | bytes | static_cast<std::size_t>(offset)) % kPage == 0;
}

class ToFile final : public staging::Sink {
public:
    ToFile(int file, off64_t offset) noexcept : file_(file), offset_(offset) {}
    std::size_t take(const std::byte* piece, std::size_t bytes) noexcept override {
        const ssize_t put = next_pwrite(file_, piece, bytes, offset_);
        error_ = put < 0 ? errno : 0;
        ended_ = put != static_cast<ssize_t>(bytes);
        offset_ += std::max<ssize_t>(put, 0);
        return static_cast<std::size_t>(std::max<ssize_t>(put, 0));
    }
    // The file took less than it was given; 0 or why.
    bool ended() const noexcept { return ended_; }
    int error() const noexcept { return error_; }

private:
    const int file_;
    off64_t offset_;
    bool ended_ = false;
    int error_ = 0;
};

}  // namespace

std::optional<off64_t> size_of(int file) noexcept {
    struct stat status {};
    if (kernel::raw(SYS_fstat, file, kernel::word(&status)) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return status.st_size;
}

bool may_read(int file, const void* at, std::size_t bytes, off64_t offset) noexcept {
    return in_pieces(kernel::raw(SYS_fcntl, file, F_GETFL), at, bytes, offset) && size_of(file);
}

bool may_write(int file, const void* at, std::size_t bytes, off64_t offset) noexcept {
    if (bytes <= kSmallest) return false;
    const auto flags = kernel::raw(SYS_fcntl, file, F_GETFL);
    if (flags < 0 || (flags & (O_APPEND | O_SYNC | O_DSYNC)) != 0 || !in_pieces(flags, at, bytes, offset)) return false;
    rlimit limit{};
    return kernel::raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, kernel::word(&limit)) == 0 &&
           limit.rlim_cur == RLIM_INFINITY && bulk::next(address(at), 0, bytes).context != nullptr && size_of(file);
}

ssize_t read(int file, void* at, std::size_t bytes, off64_t offset, const void* caller) {
    lease::Bounce bounce(at, kSmallest);
    if (bounce.memory() == nullptr) return -1;
    const auto at_hand = copiers::File::at_hand(file);
    auto* const to = static_cast<std::byte*>(at);
    std::size_t done = 0;
    while (done < bytes) {
        const auto from = offset + static_cast<off64_t>(done);
        // What is in the page cache, without waiting. Else a piece is waited for, and the kernel reads ahead.
        const auto stretch = bulk::next(address(to + done), 0, bytes - done);
        auto quick = stretch.context != nullptr ? files::read(address(to + done), stretch, at_hand.from(from)) : 0;
        if (quick == 0) quick = lease::store_file(to + done, bytes - done, at_hand.from(from));
        done += quick;
        if (quick != 0) continue;
        // Up to a multiple of the piece, so that whole blocks are stored.
        const auto piece = std::min(kSmallest - address(to + done) % kSmallest, bytes - done);
        const ssize_t got = holding(bounce, [&] { return next_pread(file, bounce.memory(), piece, from); });
        if (got < 0 && done == 0) return -1;
        if (got <= 0) break;
        const auto put = lease::store(to + done, bounce.memory(), static_cast<std::size_t>(got), caller);
        if (put == 0 && done == 0) return after_store(got, static_cast<std::size_t>(got), 0);
        done += put;
        if (put < piece) break;
    }
    return static_cast<ssize_t>(done);
}

ssize_t write(int file, const void* at, std::size_t bytes, off64_t offset, const void* caller) {
    const auto* const from = static_cast<const std::byte*>(at);
    std::size_t done = 0;
    while (done < bytes) {
        const auto to = offset + static_cast<off64_t>(done);
        const auto stretch = bulk::next(address(from + done), 0, bytes - done);
        ToFile sink(file, to);
        const auto put = stretch.context != nullptr ? files::write(address(from + done), stretch, sink) : 0;
        done += put;
        if (sink.ended()) {
            if (done != 0 || sink.error() == 0) break;
            errno = sink.error();
            return -1;
        }
        if (put != 0) continue;
        lease::ToRead memory(from + done, stretch.bytes, caller);
        const auto got = memory.memory() == nullptr
                             ? -1
                             : holding(memory, [&] { return next_pwrite(file, memory.memory(), memory.bytes(), to); });
        if (got < 0 && done == 0) return -1;
        done += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
        if (got != static_cast<ssize_t>(stretch.bytes)) break;
    }
    return static_cast<ssize_t>(done);
}

}  // namespace hpe::doors::pieces
