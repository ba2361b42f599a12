// SPDX-License-Identifier: MIT
// Copies of windows, compared with their twins piece by piece.
#include "shim/mpi/window_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/coherence/lease.h"

namespace hpe::mpi {

namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;

// Calls part(first, bytes) for each run of bytes that differ. What others write meanwhile may or may not be seen.
template <class Part>
void for_changes(const std::byte* now, const std::byte* before, std::size_t bytes, Part&& part) noexcept {
    if (std::memcmp(now, before, bytes) == 0) return;
    for (std::size_t at = 0; at < bytes;) {
        const auto first = static_cast<std::size_t>(std::mismatch(now + at, now + bytes, before + at).first - now);
        auto end = first;
        while (end < bytes && now[end] != before[end]) ++end;
        if (first < end) part(first, end - first);
        at = end + 1;
    }
}

}  // namespace

WindowCopy::WindowCopy(void* base, std::size_t bytes, const void* caller) noexcept
    : base_(static_cast<std::byte*>(base)), bytes_(bytes), caller_(caller), public_(base, bytes), twin_(base, bytes) {
    if (public_.at() == nullptr || twin_.at() == nullptr) return;
    ok_ = lease::load(public_.at(), base, bytes, caller) == bytes;
    if (ok_) std::memcpy(twin_.at(), public_.at(), bytes);
}

bool WindowCopy::publish(std::uintptr_t begin, std::size_t all) noexcept {
    const Locked held(mutex_);
    if (!lease::concerns(base_, bytes_)) return true;  // the program has freed it
    const auto end = begin - address(base_) + all;
    for (auto at = begin - address(base_); at < end; at += kPiece) {
        const auto piece = std::min(kPiece, end - at);
        const lease::ToRead now(base_ + at, piece, caller_);
        if (now.memory() == nullptr || now.bytes() != piece) {
            log::warn("the bytes at {:#x} of an MPI window cannot be had",
                      reinterpret_cast<std::uintptr_t>(base_ + at));
            return false;
        }
        const auto* const mine = static_cast<const std::byte*>(now.memory());
        for_changes(mine, twin_.at() + at, piece, [&](std::size_t first, std::size_t bytes) {
            std::memcpy(twin_.at() + at + first, mine + first, bytes);
            std::memcpy(public_.at() + at + first, twin_.at() + at + first, bytes);
        });
    }
    return true;
}

bool WindowCopy::bring(std::uintptr_t begin, std::size_t all) noexcept {
    const Locked held(mutex_);
    if (!lease::concerns(base_, bytes_)) return true;
    bool all_stored = true;
    const auto end = begin - address(base_) + all;
    for (auto at = begin - address(base_); at < end; at += kPiece) {
        const auto piece = std::min(kPiece, end - at);
        for_changes(public_.at() + at, twin_.at() + at, piece, [&](std::size_t first, std::size_t bytes) {
            auto* const came = twin_.at() + at + first;
            std::memcpy(came, public_.at() + at + first, bytes);
            if (lease::store(base_ + at + first, came, bytes, caller_) == bytes) return;
            if (all_stored) {
                log::warn("the bytes of an MPI window cannot be stored at {:#x}",
                          reinterpret_cast<std::uintptr_t>(base_ + at + first));
            }
            all_stored = false;
        });
    }
    return all_stored;
}

}  // namespace hpe::mpi
