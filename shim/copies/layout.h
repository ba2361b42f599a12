// SPDX-License-Identifier: MIT
// Where the bytes of a message with gaps lie: nested loops over one piece or a list of pieces, in the order in which
// they are packed. However a datatype was made, the same bytes get nearly the same form: a loop that continues the next
// one is one with it, pieces that touch are one, and a list with one length and one distance is a loop.
//
// Source: Pearson et al., "TEMPI: An Interposed MPI Library with a Canonical Representation of CUDA-aware Datatypes"
// (HPDC 2021), section 3, for the loops.
//
// Bytes. Copies of a layout share its list. Threads: as of a value; a list never changes. Errors: nothing where memory
// or the number of loops or pieces does not suffice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace hpe {

class Layout {
public:
    static constexpr unsigned kMostLoops = 4;
    static constexpr std::size_t kMostPieces = std::size_t{1} << 20;

    struct Loop {
        std::uint64_t count = 1;
        std::int64_t stride = 0;
        bool operator==(const Loop&) const = default;
    };
    // As the kernel reads it (pack_kernel.inc). A piece ends where the next one begins.
    struct Piece {
        std::int64_t offset;
        std::uint64_t packed;  // where it begins among the packed bytes of one turn
        bool operator==(const Piece&) const = default;
    };
    struct List {
        std::vector<Piece> pieces;
        std::uint64_t divisor = 0;                  // a power of two that divides every offset and length
        mutable std::shared_ptr<void> on_device{};  // packing.cpp's
    };

    // Layouts, one after the other.
    class Join;

    static Layout of_bytes(std::uint64_t bytes) noexcept;
    // `count` times the same, so far apart. No loop and no layout is empty.
    static std::optional<Layout> repeated(const Layout& one, std::uint64_t count, std::int64_t stride) noexcept;
    Layout moved(std::int64_t by) const noexcept;

    // From the outside.
    std::span<const Loop> loops() const noexcept { return {loops_.data(), depth_}; }
    // What the innermost loop repeats: one piece, or those of a list, all so far from where the layout is put.
    std::int64_t offset() const noexcept { return offset_; }
    const List* list() const noexcept { return list_.get(); }
    std::uint64_t turn_bytes() const noexcept { return turn_bytes_; }
    // All packed bytes.
    std::uint64_t bytes() const noexcept;
    // The first byte and the one behind the last, from where the layout is put.
    std::int64_t begin() const noexcept;
    std::int64_t end() const noexcept;
    // Whether is(begin, end), from where the layout is put, holds for any piece. If it does not for a range, it must
    // not for any part of it.
    template <class Is>
    bool any_piece(const Is& is) const {
        return any_piece(is, 0, {0, begin(), end()});
    }
    bool is_dense() const noexcept { return depth_ == 0 && list_ == nullptr; }
    // How many bytes, at most 16, one access may have if the layout is put at `at`.
    unsigned unit(std::uintptr_t at) const noexcept;

private:
    bool put_around(Loop loop) noexcept;
    struct Turn {
        std::int64_t shift, begin, end;
    };
    template <class Is>
    bool any_piece(const Is& is, unsigned depth, Turn turn) const;

    std::array<Loop, kMostLoops> loops_{};  // the first depth_
    unsigned depth_ = 0;
    std::int64_t offset_ = 0;
    std::uint64_t turn_bytes_ = 0;
    std::int64_t turn_begin_ = 0, turn_end_ = 0;  // of one turn, from offset_
    std::shared_ptr<const List> list_;
};

template <class Is>
bool Layout::any_piece(const Is& is, unsigned depth, Turn turn) const {
    if (!is(turn.begin, turn.end)) return false;
    if (depth < depth_) {
        const auto [count, stride] = loops_[depth];
        const auto reach = static_cast<std::int64_t>(count - 1) * stride;
        (reach < 0 ? turn.begin : turn.end) -= reach;  // of the first turn inside
        for (std::uint64_t i = 0; i < count; ++i) {
            if (any_piece(is, depth + 1, turn)) return true;
            turn = {turn.shift + stride, turn.begin + stride, turn.end + stride};
        }
        return false;
    }
    if (list_ == nullptr) return true;
    const auto& pieces = list_->pieces;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto bytes = (i + 1 < pieces.size() ? pieces[i + 1].packed : turn_bytes_) - pieces[i].packed;
        const auto at = turn.shift + offset_ + pieces[i].offset;
        if (is(at, at + static_cast<std::int64_t>(bytes))) return true;
    }
    return false;
}

class Layout::Join {
public:
    // False: it has become too much.
    bool add(const Layout& layout, std::int64_t offset) noexcept;
    // The same, as pieces in any case.
    bool add_pieces(const Layout& layout, std::int64_t offset) noexcept;
    // Once, after something was added.
    std::optional<Layout> finish() noexcept;

private:
    bool expand(const Layout& layout, unsigned depth, std::int64_t at);
    bool piece(std::int64_t at, std::uint64_t bytes);

    std::optional<Layout> only_;  // as long as there is one
    std::vector<Piece> pieces_;   // in packed order, those that touch made one
    std::uint64_t packed_ = 0;
    std::int64_t end_ = 0;  // of the last piece
};

}  // namespace hpe
