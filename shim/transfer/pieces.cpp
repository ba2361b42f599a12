// SPDX-License-Identifier: MIT
// Sizes of pieces and their parts, and how they are copied. All constants were measured on hosts of H200s.
#include "shim/transfer/pieces.h"

#include <algorithm>

#include "shim/base/shared_copy.h"
#include "shim/driver/driver.h"

namespace hpe::staging {

namespace {

using copiers::Crew;
using copiers::Reader;
using copiers::Rows;

// Many more parts than threads, so that no part is waited for long: with four parts for each thread 4 MiB are drained
// in 115 us, with one in 170. A smaller part costs more to begin than to copy.
constexpr std::size_t kPartsEach = 4;
constexpr std::size_t kSmallestFill = std::size_t{32} << 10, kSmallestDrain = std::size_t{8} << 10;
constexpr std::size_t kLargestPart = std::size_t{512} << 10;
// A buffer that was filled through the caches of several processors reaches the device slowly at first (22 instead of
// 39 GB/s for 16 MiB), in the end faster than others (52 instead of 40 to 47 GB/s for 1 GiB).
constexpr std::size_t kFillsCaches = std::size_t{128} << 20;
// Copies too large to be read from a cache afterwards are written past the caches.
constexpr std::size_t kOutgrowsCaches = std::size_t{32} << 20;
constinit bool copies_shared = false;

std::size_t in_pages(std::size_t bytes) noexcept { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

void Pieces::configure() noexcept { copies_shared = can_share_copies(); }

Pieces::Pieces(const Extent& extent, const Lane& lane, Way way) noexcept
    : extent_(extent), bytes_(extent.bytes()), team_(lane.team()), only_copy_(lane.only_copy()), way_(way) {
    const auto most = lane.buffer_bytes();
    piece_ = std::clamp(in_pages(fit(lane.crowded())), std::min(kSmallest, most), most);
    const auto share = in_pages(piece_ / (kPartsEach * (team_ + 1)));
    part_ = std::clamp(share, way == Way::Fill ? kSmallestFill : kSmallestDrain, kLargestPart);
    if (in_rows()) piece_ = std::max(piece_ / extent.width, std::size_t{1}) * extent.width;
}

std::size_t Pieces::fit(bool crowded) const noexcept {
    // The link is kept busy by the other copies, and the driver by their calls: eight threads with 4 MiB each reach 48
    // GB/s in halves, 31 in pieces of 256 KiB.
    if (crowded) return bytes_ / 2;
    // Each piece costs an event and a wait, and the last piece is drained while nothing else moves.
    if (way_ == Way::Drain) return bytes_ / 8;
    constexpr std::size_t middling = std::size_t{1} << 20;
    return std::max(bytes_ / 32, std::min(bytes_ / 4, middling));
}

std::size_t Pieces::size(std::size_t piece) const noexcept { return std::min(piece_, bytes_ - begin(piece)); }

// Rows so narrow that copying past the caches gains nothing: each row's end waits for its stores.
bool Pieces::narrow() const noexcept { return in_rows() && extent_.width < std::size_t{4096}; }

// To the device: a thread shares its copies at half the speed that it writes past its caches. Where few of them fill
// buffers the device would wait (28 instead of 45 GB/s with five).
Reader Pieces::reader() const noexcept {
    constexpr unsigned kMany = 8;
    constexpr std::size_t kOutweighs = std::size_t{8} << 20;
    if (way_ == Way::Drain) return bytes_ >= kOutgrowsCaches && !narrow() ? Reader::Nobody : Reader::Processor;
    const bool sharing = copies_shared && team_ >= kMany;
    if (bytes_ >= kFillsCaches) return Reader::Processor;
    // 1 MiB in rows of 1000 bytes: 15 GB/s shared, 12 not; 16 MiB 38 and 19.
    if (narrow()) return sharing ? Reader::Device : Reader::Processor;
    return sharing && bytes_ >= kOutweighs ? Reader::Device : Reader::Nobody;
}

// 16 MiB are drained in 370 us by ten, in 430 by fourteen, 256 MiB in 5.1 and 5.4 ms; up to 8 MiB it is all the same.
// To the device ten are better where buffers are filled through their caches, by a fiftieth. That is for one link:
// several copies may be several devices'.
Crew Pieces::crew() const noexcept {
    return only_copy_ && (way_ == Way::Drain || bytes_ >= kFillsCaches) ? Crew::Few : Crew::All;
}

std::size_t Pieces::begin_at(std::size_t piece, std::size_t pitch) const noexcept {
    return in_rows() ? begin(piece) / extent_.width * pitch : begin(piece);
}

Rows Pieces::filling(std::size_t piece, std::byte* buffer, const std::byte* host) const noexcept {
    host += begin_at(piece, extent_.host_pitch);
    if (!in_rows()) return {buffer, host, size(piece)};
    return {buffer, host, extent_.width, rows(piece), extent_.width, extent_.host_pitch};
}

Rows Pieces::draining(std::size_t piece, std::byte* host, const std::byte* buffer) const noexcept {
    host += begin_at(piece, extent_.host_pitch);
    if (!in_rows()) return {host, buffer, size(piece)};
    return {host, buffer, extent_.width, rows(piece), extent_.host_pitch, extent_.width};
}

CUDA_MEMCPY2D Pieces::rows_of(std::size_t piece) const noexcept {
    CUDA_MEMCPY2D copy{};
    copy.WidthInBytes = extent_.width;
    copy.Height = rows(piece);
    return copy;
}

CUresult Pieces::send_to(CUdeviceptr device, std::size_t piece, const std::byte* buffer,
                         CUstream stream) const noexcept {
    device += begin_at(piece, extent_.device_pitch);
    if (!in_rows()) return across::to_device(device, buffer, size(piece), extent_.over, stream);
    auto copy = rows_of(piece);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = buffer, copy.srcPitch = extent_.width;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = device, copy.dstPitch = extent_.device_pitch;
    return driver.cuMemcpy2DAsync_v2(&copy, stream);
}

CUresult Pieces::send_from(CUdeviceptr device, std::size_t piece, std::byte* buffer, CUstream stream) const noexcept {
    device += begin_at(piece, extent_.device_pitch);
    if (!in_rows()) return across::to_host(buffer, device, size(piece), extent_.over, stream);
    auto copy = rows_of(piece);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = device, copy.srcPitch = extent_.device_pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = buffer, copy.dstPitch = extent_.width;
    return driver.cuMemcpy2DAsync_v2(&copy, stream);
}

void Pieces::hand_over(copiers::Job& job, const Rows& rows) const noexcept {
    if (team_ == 0) {
        copiers::move(rows, reader());
    } else {
        job.begin(rows, part_, reader(), crew());
    }
}

}  // namespace hpe::staging
