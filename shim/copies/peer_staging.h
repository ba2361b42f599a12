// SPDX-License-Identifier: MIT
// Copies between two GPUs of which neither reaches the other's memory (Peers), through bounce buffers: one GPU fills a
// buffer while the other empties another, so that both directions of the link are in use. The driver has fewer bytes
// under way (36 to 38 GB/s on the host of two H200s, where four buffers of 2 MiB give 43 to 49).
//
// Streams order everything; nothing waits on the CPU. One of the two streams is the program's, and the copy begins and
// ends there: its order with the program's other work is that of this stream. The other is a peer stream, libhpe's own
// in the other GPU's context. It follows one stream of the program's only: that stream may wait for anything, and other
// copies must not wait with it.
//
// The first copies of each class of sizes go both ways in turn, between timing events in the program's stream, and the
// faster way is taken from then on (Crossover).
//
// Left to the driver: copies in captures, and those issued in a third context. Peer streams and their buffers
// (HPE_PINNED_LIMIT) are made when the device has nothing to do, since pinning waits for it; until then copies are the
// driver's.
//
// Bytes. Threads: any, inside the gate as a launch. Streams and memory are the program's; peer streams end with their
// context. Errors: none of ours reaches the program while the driver can do the copy instead.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <optional>

#include "shim/base/thread.h"
#include "shim/copies/reservations.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::peer_staging {

constexpr std::size_t kSmallest = std::size_t{4} << 20;

struct Copy {
    CUdeviceptr to, from;
    std::size_t bytes;
    CUstream stream;  // null: how `flavour` reads it
    Flavour flavour;
    CUcontext to_context, from_context;  // of different devices; null: not for us
};

// What orders a copy: its stream, or all work of the contexts that it concerns ("cuMemcpyPeer" of the driver manual).
enum class Ordered : bool { InStream, AmongContexts };

namespace detail {

struct PeerStream;
struct Trial;

class Attempt {
public:
    Attempt(const Copy& copy, Ordered ordered) noexcept;
    ~Attempt();
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    bool staged() const noexcept { return peer_stream_ != nullptr; }
    // Enqueues the copy of these bytes. If it returns no error and `made` is false, the driver has to copy them, in the
    // same stream.
    CUresult enqueue(std::size_t begin, std::size_t bytes, bool& made) noexcept;
    // All of the copy is in the stream.
    void succeeded() noexcept;

private:
    const Copy& copy_;
    PeerStream* peer_stream_ = nullptr;
    Trial* trial_ = nullptr;
    std::optional<StreamReservation> reservation_;
};

extern std::atomic<unsigned> requests;  // for peer streams
void make_requested() noexcept;

}  // namespace detail

// `part(to, from, bytes)` is the program's own call for a part of the copy. A copy that is ordered among contexts
// begins and ends with a small part by the driver, which orders it better than we could.
template <class Part>
CUresult copy(const Copy& copy, Ordered ordered, Part&& part) {
    if (copy.to_context == nullptr || copy.bytes < kSmallest) return part(copy.to, copy.from, copy.bytes);
    detail::Attempt attempt(copy, ordered);
    auto result = CUDA_SUCCESS;
    if (attempt.staged()) {
        const std::size_t edge = ordered == Ordered::AmongContexts ? 4096 : 0, middle = copy.bytes - 2 * edge;
        if (edge != 0) result = part(copy.to, copy.from, edge);
        bool made = true;
        if (result == CUDA_SUCCESS) result = attempt.enqueue(edge, middle, made);
        if (!made && result == CUDA_SUCCESS) result = part(copy.to + edge, copy.from + edge, middle);
        const auto rest = copy.bytes - edge;
        // Nearly all bytes are there: a call that fails once is tried again.
        if (edge != 0 && result == CUDA_SUCCESS) {
            result = with_retry([&] { return part(copy.to + rest, copy.from + rest, edge); });
        }
    } else {
        result = part(copy.to, copy.from, copy.bytes);
    }
    if (result == CUDA_SUCCESS) attempt.succeeded();
    return result;
}

// The program waited for the device.
inline void waited() noexcept {
    if (detail::requests.load(std::memory_order_relaxed) != 0) [[unlikely]] {
        detail::make_requested();
    }
}

// The context is gone, with what was made in it.
void forget(CUcontext context) noexcept;

}  // namespace hpe::peer_staging
