// SPDX-License-Identifier: MIT
// Headers, and the lines of /proc/self/maps (proc(5)).
#include "shim/memory/malloc_chunk.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "shim/base/kernel.h"
#include "shim/base/kernel_file.h"

namespace hpe::malloc_chunk {

namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr std::uintptr_t kMapped = 2, kFlags = 7;  // of a size
constexpr std::uintptr_t kMost = std::uintptr_t{1} << 46;

struct Header {
    std::uintptr_t before, size;
};

// Where in its page a header may be: as malloc and as aligned_alloc place it, for 32 to 128 bytes and for whole pages.
constexpr std::array<std::uintptr_t, 5> kPlaces{0, 16, 48, 112, kPage - sizeof(Header)};
constexpr std::size_t kPagesAtOnce = 128;
constexpr std::uintptr_t kFarthest = std::uintptr_t{64} << 20;

// Returns bytes, or a negative errno.
long read(const iovec* own, std::size_t count, const iovec* other, std::size_t other_count) noexcept {
    return kernel::raw(SYS_process_vm_readv, kernel::raw(SYS_getpid), kernel::word(own), kernel::word(count),
                       kernel::word(other), kernel::word(other_count), 0);
}
long read(Header& to, std::uintptr_t at) noexcept {
    const iovec own{&to, sizeof to}, other{reinterpret_cast<void*>(at), sizeof to};
    return read(&own, 1, &other, 1);
}

bool is_header(const Header& header, std::uintptr_t at, std::uintptr_t begin, std::size_t bytes) noexcept {
    const auto size = header.size & ~kFlags;
    if ((header.size & kFlags) != kMapped || header.before > at || size > kMost || (at - header.before) % kPage != 0 ||
        (header.before + size) % kPage != 0) {
        return false;
    }
    return at + sizeof header <= begin && begin + bytes <= at + size;
}

// The mapping that holds the range, from its first address; 0: there is none of the kind.
std::uintptr_t mapping_of(std::uintptr_t begin, std::size_t bytes) noexcept {
    std::uintptr_t found = 0;
    kernel::look_at_mappings([&](std::uintptr_t first, std::uintptr_t end, std::string_view rest) {
        if (end < begin + bytes) return false;
        // "rw-p 00000000 00:00 0" and no name, or a name that the kernel keeps for anonymous memory.
        constexpr std::string_view kKind = " rw-p 00000000 00:00 0";
        if (first <= begin && rest.starts_with(kKind)) {
            const auto name = rest.find_first_not_of(' ', kKind.size());
            if (name == rest.npos || rest.substr(name).starts_with("[anon:")) found = first;
        }
        return true;
    });
    return found;
}

// The nearest header in front of the range, page by page.
std::optional<Chunk> search(std::uintptr_t first, std::uintptr_t begin, std::size_t bytes) noexcept {
    constexpr std::size_t kAtOnce = kPagesAtOnce * kPlaces.size();
    std::array<Header, kAtOnce> headers;
    std::array<iovec, kAtOnce> parts;
    auto page = begin / kPage * kPage;
    const auto last = std::max(first, page > kFarthest ? page - kFarthest : 0);
    for (bool more = true; more;) {
        std::size_t count = 0;
        for (std::size_t i = 0; more && i < kPagesAtOnce; ++i, page -= kPage) {
            for (const auto place : kPlaces) {
                parts[count++] = {reinterpret_cast<void*>(page + place), sizeof(Header)};
            }
            more = page > last;
        }
        const iovec own{headers.data(), count * sizeof(Header)};
        const auto got = read(&own, 1, parts.data(), count);
        const auto whole = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof(Header);
        for (std::size_t i = 0; i < whole; ++i) {
            const auto at = reinterpret_cast<std::uintptr_t>(parts[i].iov_base);
            if (is_header(headers[i], at, begin, bytes)) return Chunk{at - headers[i].before, at};
        }
        if (whole < count) break;
    }
    return {};
}

}  // namespace

std::optional<Chunk> find(std::uintptr_t begin, std::size_t bytes, const Chunk& known) noexcept {
    if (begin > kMost * 2 || bytes > kMost) return {};
    const auto first = mapping_of(begin, bytes);
    if (first == 0) return {};
    if (known.begin != 0 && holds(known, begin, bytes)) return known;
    Header header;
    const auto at = begin - sizeof header;
    if (at >= first && read(header, at) == sizeof header && is_header(header, at, begin, bytes)) {
        return Chunk{at - header.before, at};
    }
    return search(first, begin, bytes);
}

bool holds(const Chunk& chunk, std::uintptr_t begin, std::size_t bytes) noexcept {
    Header header;
    const auto got = read(header, chunk.header);
    if (got < 0 && got != -EFAULT) return true;
    return got == sizeof header && is_header(header, chunk.header, begin, bytes) &&
           chunk.header - header.before == chunk.begin;
}

bool readable() noexcept {
    const Header some{1, 2};
    Header header{};
    return read(header, reinterpret_cast<std::uintptr_t>(&some)) == sizeof header && header.before == some.before;
}

}  // namespace hpe::malloc_chunk
