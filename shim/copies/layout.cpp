// SPDX-License-Identifier: MIT
// Layouts, put together from the inside to the outside.
#include "shim/copies/layout.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hpe {

namespace {

// Nothing reaches farther than the address space.
constexpr std::int64_t kFar = std::int64_t{1} << 47;

// What divides two numbers, as far as powers of two go, is the lowest bit of both.
constexpr std::uint64_t lowest_bit(std::uint64_t bits) noexcept { return bits & (~bits + 1); }
constexpr std::uint64_t bits_of(std::int64_t value) noexcept { return static_cast<std::uint64_t>(value); }

// How far the last turn is from the first; nothing where that is too far.
std::optional<std::int64_t> reach(const Layout::Loop& loop) noexcept {
    std::int64_t far = 0;
    if (loop.count > bits_of(kFar) ||
        __builtin_mul_overflow(static_cast<std::int64_t>(loop.count - 1), loop.stride, &far) || far >= kFar ||
        far <= -kFar) {
        return std::nullopt;
    }
    return far;
}
std::int64_t reach_of_kept(const Layout::Loop& loop) noexcept {
    return static_cast<std::int64_t>(loop.count - 1) * loop.stride;
}

}  // namespace

bool Layout::Join::add(const Layout& layout, std::int64_t offset) noexcept {
    if (offset >= kFar || offset <= -kFar) return false;
    if (!only_ && pieces_.empty()) {
        only_ = layout.moved(offset);
        return true;
    }
    if (const auto first = std::exchange(only_, std::nullopt); first && !add_pieces(*first, 0)) return false;
    return add_pieces(layout, offset);
}

bool Layout::Join::add_pieces(const Layout& layout, std::int64_t offset) noexcept try {
    return expand(layout, 0, offset + layout.offset_);
} catch (const std::bad_alloc&) {
    return false;
}

bool Layout::Join::expand(const Layout& layout, unsigned depth, std::int64_t at) {
    if (depth < layout.depth_) {
        const auto& loop = layout.loops_[depth];
        for (std::uint64_t i = 0; i < loop.count; ++i, at += loop.stride) {
            if (!expand(layout, depth + 1, at)) return false;
        }
        return true;
    }
    if (layout.list_ == nullptr) return piece(at, layout.turn_bytes_);
    const auto& pieces = layout.list_->pieces;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto end = i + 1 < pieces.size() ? pieces[i + 1].packed : layout.turn_bytes_;
        if (!piece(at + pieces[i].offset, end - pieces[i].packed)) return false;
    }
    return true;
}

bool Layout::Join::piece(std::int64_t at, std::uint64_t bytes) {
    if (pieces_.empty() || at != end_) {
        if (pieces_.size() == kMostPieces || at >= kFar || at <= -kFar) return false;
        pieces_.push_back({at, packed_});
    }
    end_ = at + static_cast<std::int64_t>(bytes);
    packed_ += bytes;
    return true;
}

std::optional<Layout> Layout::Join::finish() noexcept try {
    if (only_ || pieces_.empty()) return only_;
    const auto n = pieces_.size();
    const auto length = [&](std::size_t i) {
        return (i + 1 < n ? pieces_[i + 1].packed : packed_) - pieces_[i].packed;
    };
    bool regular = true;
    for (std::size_t i = 1; i < n; ++i) {
        regular = regular && length(i) == length(0) &&
                  pieces_[i].offset - pieces_[i - 1].offset == pieces_[1].offset - pieces_[0].offset;
    }
    if (regular) {
        Layout all = of_bytes(length(0)).moved(pieces_[0].offset);
        if (n > 1) all.put_around({n, pieces_[1].offset - pieces_[0].offset});
        return all;
    }
    Layout all;
    auto list = std::make_shared<List>();
    std::uint64_t bits = packed_;
    all.turn_bytes_ = packed_;
    all.turn_begin_ = kFar;
    all.turn_end_ = -kFar;
    for (std::size_t i = 0; i < n; ++i) {
        const auto& piece = pieces_[i];
        bits |= bits_of(piece.offset) | piece.packed;
        all.turn_begin_ = std::min(all.turn_begin_, piece.offset);
        all.turn_end_ = std::max(all.turn_end_, piece.offset + static_cast<std::int64_t>(length(i)));
    }
    list->divisor = lowest_bit(bits);
    list->pieces = std::move(pieces_);
    all.list_ = std::move(list);
    return all;
} catch (const std::bad_alloc&) {
    return std::nullopt;
}

Layout Layout::of_bytes(std::uint64_t bytes) noexcept {
    Layout one;
    one.turn_bytes_ = bytes;
    one.turn_end_ = static_cast<std::int64_t>(bytes);
    return one;
}

Layout Layout::moved(std::int64_t by) const noexcept {
    Layout there = *this;
    there.offset_ += by;
    return there;
}

bool Layout::put_around(Loop loop) noexcept {
    if (loop.count == 1) return true;
    if (is_dense() && loop.stride == static_cast<std::int64_t>(turn_bytes_)) {
        turn_bytes_ *= loop.count;
        turn_end_ = static_cast<std::int64_t>(turn_bytes_);
        return true;
    }
    if (depth_ != 0 && static_cast<std::int64_t>(loops_[0].count) * loops_[0].stride == loop.stride) {
        loops_[0].count *= loop.count;
        return true;
    }
    if (depth_ == kMostLoops) return false;
    std::copy_backward(loops_.begin(), loops_.begin() + depth_, loops_.begin() + depth_ + 1);
    loops_[0] = loop;
    ++depth_;
    return true;
}

std::optional<Layout> Layout::repeated(const Layout& one, std::uint64_t count, std::int64_t stride) noexcept {
    std::uint64_t bytes = 0;
    if (count == 0 || one.turn_bytes_ == 0 || !reach({count, stride}) ||
        __builtin_mul_overflow(one.bytes(), count, &bytes) || bytes >= bits_of(kFar)) {
        return std::nullopt;
    }
    Layout all = one;
    if (!all.put_around({count, stride})) {
        // One loop more than there can be: those inside become a list.
        Join join;
        if (!join.add_pieces(one, 0)) return std::nullopt;
        const auto listed = join.finish();
        if (!listed) return std::nullopt;
        all = *listed;
        if (!all.put_around({count, stride})) return std::nullopt;
    }
    if (all.begin() <= -kFar || all.end() >= kFar) return std::nullopt;
    return all;
}

std::uint64_t Layout::bytes() const noexcept {
    auto all = turn_bytes_;
    for (const auto& loop : loops()) all *= loop.count;
    return all;
}

std::int64_t Layout::begin() const noexcept {
    auto first = offset_ + turn_begin_;
    for (const auto& loop : loops()) first += std::min<std::int64_t>(reach_of_kept(loop), 0);
    return first;
}

std::int64_t Layout::end() const noexcept {
    auto last = offset_ + turn_end_;
    for (const auto& loop : loops()) last += std::max<std::int64_t>(reach_of_kept(loop), 0);
    return last;
}

unsigned Layout::unit(std::uintptr_t at) const noexcept {
    auto bits = at + bits_of(offset_);
    bits |= list_ != nullptr ? list_->divisor : turn_bytes_;
    for (const auto& loop : loops()) bits |= bits_of(loop.stride);
    return static_cast<unsigned>(std::min<std::uint64_t>(lowest_bit(bits | 16), 16));
}

}  // namespace hpe
