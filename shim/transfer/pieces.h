// SPDX-License-Identifier: MIT
// How a staged copy is cut: into pieces of one transfer and one bounce buffer each, and a piece into parts for the
// helpers. All helpers work on the oldest piece, so that the device has it soon; the first pieces of a small copy are
// small. A piece of a copy in rows is whole rows, which lie in the buffer without gaps.
//
// Bytes. Threads: each copy's own. Errors: the driver's, of the transfers.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "shim/transfer/copiers.h"
#include "shim/transfer/staging.h"

namespace hpe::staging {

class Pieces {
public:
    // Buffers are filled for copies to the device, drained for those to the host.
    enum class Way : std::uint8_t { Fill, Drain };
    // A smaller transfer costs more to enqueue than to make: in pieces of 256 KiB a copy of 1 MiB reaches 22 GB/s on an
    // H200, in pieces of 512 KiB 24.5.
    static constexpr std::size_t kSmallest = std::size_t{512} << 10;

    // Once, before anything else.
    static void configure() noexcept;
    Pieces(const Extent& extent, const Lane& lane, Way way) noexcept;

    std::size_t count() const noexcept { return (bytes_ + piece_ - 1) / piece_; }
    std::size_t begin(std::size_t piece) const noexcept { return piece * piece_; }
    std::size_t size(std::size_t piece) const noexcept;
    // How many bytes its transfer moves.
    std::size_t moved(CUdeviceptr device, std::size_t piece) const noexcept {
        return across::allocated_bytes(extent_.over.region, device + begin(piece), size(piece));
    }

    // The copy of a piece from the program's memory to its buffer, and back.
    copiers::Rows filling(std::size_t piece, std::byte* buffer, const std::byte* host) const noexcept;
    copiers::Rows draining(std::size_t piece, std::byte* host, const std::byte* buffer) const noexcept;
    // The transfer of a piece from its buffer to the device, and back. `device`: the first byte of the whole copy.
    CUresult send_to(CUdeviceptr device, std::size_t piece, const std::byte* buffer, CUstream stream) const noexcept;
    CUresult send_from(CUdeviceptr device, std::size_t piece, std::byte* buffer, CUstream stream) const noexcept;

    // Hands a piece that is to be filled or drained to the helpers; without any it is copied here.
    void hand_over(copiers::Job& job, const copiers::Rows& rows) const noexcept;

private:
    bool in_rows() const noexcept { return extent_.rows > 1; }
    bool narrow() const noexcept;
    copiers::Reader reader() const noexcept;
    copiers::Crew crew() const noexcept;
    std::size_t begin_at(std::size_t piece, std::size_t pitch) const noexcept;
    std::size_t rows(std::size_t piece) const noexcept { return size(piece) / extent_.width; }
    CUDA_MEMCPY2D rows_of(std::size_t piece) const noexcept;
    std::size_t fit(bool crowded) const noexcept;

    const Extent extent_;
    const std::size_t bytes_;
    const unsigned team_;
    const bool only_copy_;
    const Way way_;
    std::size_t piece_, part_;
};

}  // namespace hpe::staging
