// SPDX-License-Identifier: MIT
// Copies between the device and memory that is not pinned, or files, through recycled bounce buffers (pinned): the
// device moves one buffer while helper threads fill or drain others. The driver does this with one thread and one small
// buffer, at a fifth of the link's speed (docs/hardware.md).
//
// The buffers belong to a context and die with it. A copy takes the buffers that are free and never waits for those of
// another copy, which may be stuck behind a kernel that waits for this very thread.
//
// Bytes. Threads: any, outside host callbacks; copies in a lane of one's own buffers also in the fault path. Errors:
// the driver's; on failure the destination's content is undefined, as after a failed copy of CUDA's.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/transfer/across.h"
#include "shim/transfer/copiers.h"

namespace hpe::staging {

// Instead of a number of threads: as many as help.
constexpr unsigned kAutomatic = ~0u;

// Once, before anything else: helper threads (HPE_STAGING_THREADS, or kAutomatic) and bytes of a buffer
// (HPE_STAGING_BLOCK).
void configure(unsigned threads, std::size_t buffer_bytes) noexcept;
// Helpers that a copy may have; 0 if the user wants none, or the process has only one processor.
unsigned helpers() noexcept;
// Whether the user gave their number: then staging starts with the first copy (break_even.h).
bool asked_for() noexcept;
// Makes them, near the device of the current context. Outside the fault path. Returns how many run.
unsigned start_helpers() noexcept;

struct BounceBuffer {
    std::byte* memory = nullptr;
    CUevent event = nullptr;  // after the last transfer from or to it
    bool in_flight = false;   // that transfer may not have ended
    bool broken = false;      // the end of its transfers cannot be told: it is never used again
};

// Until the last transfer from or to it has ended.
CUresult wait_until_free(BounceBuffer& buffer) noexcept;

struct Pool;

// The buffers of one copy, from its beginning to its end.
class Lane {
public:
    static constexpr unsigned kMost = 8;

    // In a context that is current, for a copy of `bytes`. If there are too few buffers, and may_pin() says so, makes
    // more, up to `most_pinned` bytes of them in the process; that waits for the device. size() is 0 if there is no
    // buffer.
    Lane(CUcontext context, std::size_t bytes, std::size_t most_pinned, bool (*may_pin)()) noexcept;
    // Uses the caller's own buffers, and the helpers that run already if `bytes` are worth it: for the fault path,
    // which can make neither.
    Lane(CUcontext context, std::span<BounceBuffer* const> own, std::size_t bytes_of_each, std::size_t bytes) noexcept;
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    unsigned size() const noexcept { return count_; }
    // Of each buffer.
    std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    // Helpers for this copy: its share of all, other copies being under way.
    unsigned team() const noexcept { return team_; }
    // No other copy was under way when this one began.
    bool only_copy() const noexcept { return only_copy_; }
    // So many others are under way that this copy has no helper.
    bool crowded() const noexcept { return pool_ != nullptr && team_ == 0; }
    BounceBuffer& operator[](std::size_t piece) noexcept { return *buffers_[piece % count_]; }
    // Buffers were made for this copy, or may be for a later one: it takes longer than others will.
    bool growing() const noexcept { return growing_; }
    CUcontext context() const noexcept { return context_; }
    // Whether the stream is none of the program's.
    bool owns(CUstream stream) const noexcept;
    // Streams of libhpe's own, which wait for nothing of the program's.
    CUstream to_device() const noexcept;
    CUstream to_host() const noexcept;

private:
    const CUcontext context_;
    Pool* pool_ = nullptr;  // nullptr: the buffers are the caller's
    std::array<BounceBuffer*, kMost> buffers_{};
    std::size_t buffer_bytes_ = 0;
    unsigned count_ = 0, team_ = 0;
    bool only_copy_ = true, growing_ = false;
};

// What a copy moves: rows of so many bytes, so far apart on either side; one row: linear memory, which may be that of
// several allocations if it is said so.
struct Extent {
    std::size_t width = 0;
    std::size_t rows = 1;
    std::size_t host_pitch = 0, device_pitch = 0;
    across::Over over{};
    std::size_t bytes() const noexcept { return width * rows; }
};

// Each of several rows must fit into a buffer.
bool takes(const Extent& extent) noexcept;
// Whether a copy to the device has a place for all its bytes, and so returns though its stream does not move.
bool has_room(const Lane& lane, const Extent& extent) noexcept;
// `from` may be reused on return; the device has the bytes when `stream` has come that far. With `wait` it has come
// that far on return.
CUresult copy_to_device(Lane& lane, CUdeviceptr to, const std::byte* from, const Extent& extent, CUstream stream,
                        bool wait) noexcept;
// Done on return.
CUresult copy_to_host(Lane& lane, std::byte* to, CUdeviceptr from, const Extent& extent, CUstream stream) noexcept;
// What is at hand of a regular file (in the page cache), done on return. Returns how many bytes the device has, from
// the first on; after an error 0, and the content is undefined.
std::size_t read_to_device(Lane& lane, CUdeviceptr to, const copiers::File& file, std::size_t bytes) noexcept;

// Who takes the bytes of a copy from the device, piece by piece and in order, while the device brings the next ones.
class Sink {
public:
    // Returns how many it has taken; fewer end the copy.
    virtual std::size_t take(const std::byte* piece, std::size_t bytes) noexcept = 0;

protected:
    ~Sink() = default;
};
// Returns how many bytes were taken; fewer also where the device cannot bring more.
std::size_t copy_to_sink(Lane& lane, Sink& sink, CUdeviceptr from, std::size_t bytes) noexcept;

// The context's buffers went with it.
void forget(CUcontext context) noexcept;

}  // namespace hpe::staging
