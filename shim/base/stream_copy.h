// SPDX-License-Identifier: MIT
// A copy for memory that is used once: it reads four pages side by side and writes past the caches. A thread that
// copies with memcpy waits for one page after the other, and reads what it is about to overwrite: on an H200's host it
// reaches half of what this does.
//
// Bytes. Threads: any; what was written is visible to threads that synchronise with this one, and to devices. Errors:
// none.
#pragma once

#include <emmintrin.h>

#include <cstddef>
#include <cstring>

namespace hpe {

inline void stream_copy(void* to, const void* from, std::size_t bytes) noexcept {
    constexpr std::size_t kLine = 64, kPageBytes = 4096, kSide = 4, kGroup = kSide * kPageBytes, kAhead = 4 * kLine;
    auto* t = static_cast<char*>(to);
    const auto* f = static_cast<const char*>(from);
    const auto misaligned = reinterpret_cast<std::size_t>(t) % kLine;
    if (misaligned != 0 && bytes >= kLine) {
        const auto head = kLine - misaligned;
        std::memcpy(t, f, head);
        t += head;
        f += head;
        bytes -= head;
    }
    for (; bytes >= kGroup; t += kGroup, f += kGroup, bytes -= kGroup) {
        for (std::size_t line = 0; line < kPageBytes; line += kLine) {
            for (std::size_t page = 0; page < kGroup; page += kPageBytes) {
                const auto* source = reinterpret_cast<const __m128i*>(f + page + line);
                auto* target = reinterpret_cast<__m128i*>(t + page + line);
                if (line + kAhead < kPageBytes) _mm_prefetch(f + page + line + kAhead, _MM_HINT_T0);
                const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1),
                              c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
                _mm_stream_si128(target, a);
                _mm_stream_si128(target + 1, b);
                _mm_stream_si128(target + 2, c);
                _mm_stream_si128(target + 3, d);
            }
        }
    }
    _mm_sfence();
    std::memcpy(t, f, bytes);
}

}  // namespace hpe
