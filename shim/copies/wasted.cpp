// SPDX-License-Identifier: MIT
// Hashes by device address, and allocations by size.
#include "shim/copies/wasted.h"

#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#define HPE_HAVE_XXHASH 1
#endif

#include <algorithm>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/base/errno_kept.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/copies/pageable.h"
#include "shim/copies/unread_copies.h"
#include "shim/driver/driver.h"
#include "shim/observe/call_stacks.h"
#include "shim/transfer/copiers.h"

namespace hpe::wasted {

namespace {

using call_stacks::Cost;
using call_stacks::Event;

constexpr std::size_t kMostRanges = 1u << 16;

struct Content {
    std::size_t width, rows;
    std::uint64_t hash;
};
struct State {
    Mutex mutex;
    std::unordered_map<CUdeviceptr, Content> contents HPE_GUARDED_BY(mutex);
    std::unordered_map<CUdeviceptr, std::pair<std::size_t, bool>> live
        HPE_GUARDED_BY(mutex);  // bytes; whether it is a renewed allocation
    std::unordered_map<std::size_t, std::size_t> gone HPE_GUARDED_BY(mutex);  // freed allocations of a size
};
State& state() {
    static NeverDestroyed<State> instance;
    return *instance;
}

enum class Memory { Pageable, Pinned, Other };
// Reading managed memory would move it.
Memory kind_of(const void* host) noexcept {
    const ErrnoKept kept;
    const Inside inside;
    const auto address = reinterpret_cast<CUdeviceptr>(host);
    unsigned type = 0, managed = 0;
    const auto asked = driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    if (asked == CUDA_ERROR_INVALID_VALUE) return Memory::Pageable;
    if (asked != CUDA_SUCCESS || type != CU_MEMORYTYPE_HOST) return Memory::Other;
    if (driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) != CUDA_SUCCESS) managed = 1;
    return managed == 0 ? Memory::Pinned : Memory::Other;
}

#ifdef HPE_HAVE_XXHASH
// In pieces, whether or not there are helpers: else the hashes of a copy before and after they came would differ.
std::uint64_t hash_of(const std::byte* bytes, std::size_t count) {
    const auto piece = std::max(std::size_t{256} << 10, count / 1024 / 4096 * 4096);
    if (count <= piece) return XXH3_64bits(bytes, count);
    struct Pieces {
        const std::byte* bytes;
        std::size_t piece;
        std::vector<std::uint64_t> hashes;
    } pieces{bytes, piece, std::vector<std::uint64_t>((count + piece - 1) / piece)};
    copiers::Job job;
    job.begin_calls(
        count, piece,
        [](void* context, std::size_t offset, std::size_t size) {
            auto& of = *static_cast<Pieces*>(context);
            of.hashes[offset / of.piece] = XXH3_64bits(of.bytes + offset, size);
        },
        &pieces);
    job.finish();
    return XXH3_64bits(pieces.hashes.data(), pieces.hashes.size() * sizeof(std::uint64_t));
}

bool hash_of(const Copy& copy, std::uint64_t& hash) {
    if (copy.rows == 1) {
        hash = hash_of(static_cast<const std::byte*>(copy.host), copy.width);
        return true;
    }
    XXH3_state_t rows;
    XXH3_64bits_reset(&rows);
    const auto* row = static_cast<const std::byte*>(copy.host);
    for (std::size_t i = 0; i < copy.rows; ++i, row += copy.host_pitch) XXH3_64bits_update(&rows, row, copy.width);
    hash = XXH3_64bits_digest(&rows);
    return true;
}
#else
bool hash_of(const Copy&, std::uint64_t&) noexcept { return false; }
#endif

// Whether those bytes are what was last known to be there; from now on they are.
bool known_already(const Copy& copy, std::uint64_t hash) {
    auto& s = state();
    const Locked lock(s.mutex);
    const Content now{copy.width, copy.rows, hash};
    const auto known = s.contents.find(copy.device);
    if (known == s.contents.end()) {
        if (s.contents.size() < kMostRanges) s.contents.emplace(copy.device, now);
        return false;
    }
    const auto before = std::exchange(known->second, now);
    return before.width == now.width && before.rows == now.rows && before.hash == now.hash;
}

}  // namespace

void copied(const Copy& copy) noexcept try {
    Event* const event = Event::current();
    const auto bytes = copy.width * copy.rows;
    if (event == nullptr || event->begin() == 0 || bytes == 0) return;
    const auto begin = ticks::now();
    const auto took = begin - event->begin();
    event->add(copy.to_device ? Cost::ToDeviceBytes : Cost::ToHostBytes, bytes);
    const auto memory = kind_of(copy.host);
    if (memory == Memory::Pageable) {
        event->add(Cost::PageableBytes, bytes);
        event->add(Cost::PageableTicks, took);
    } else if (memory == Memory::Pinned && copy.done) {
        event->add(Cost::PinnedSyncBytes, bytes);
        event->add(Cost::PinnedSyncTicks, took);
    }
    // To pageable memory a large asynchronous copy, too, returns when it is done ("API synchronization behavior" of the
    // driver manual).
    const bool arrived = copy.to_device || copy.done || (memory == Memory::Pageable && bytes > pageable::kKeptToHost);
    std::uint64_t hash = 0;
    if (memory != Memory::Other && arrived && hash_of(copy, hash) && known_already(copy, hash)) {
        event->add(copy.to_device ? Cost::SentAgainBytes : Cost::BackBytes, bytes);
        event->add(copy.to_device ? Cost::SentAgainTicks : Cost::BackTicks, took);
    }
    if (memory == Memory::Pageable && !copy.to_device && arrived && copy.rows == 1) {
        unread_copies::copied(*event, copy.host, copy.width, took);
    }
    event->leave_out(ticks::now() - begin);
} catch (const std::bad_alloc&) {
}

void allocated(CUdeviceptr address, std::size_t bytes) noexcept try {
    Event* const event = Event::current();
    if (event == nullptr || event->begin() == 0) return;
    const auto took = ticks::now() - event->begin();
    auto& s = state();
    bool renewed = false;
    {
        const Locked lock(s.mutex);
        const auto gone = s.gone.find(bytes);
        renewed = gone != s.gone.end() && gone->second != 0;
        if (renewed) --gone->second;
        if (s.live.size() < kMostRanges) s.live[address] = {bytes, renewed};
    }
    if (!renewed) return;
    event->add(Cost::Renewed, 1);
    event->add(Cost::RenewedBytes, bytes);
    event->add(Cost::RenewedTicks, took);
} catch (const std::bad_alloc&) {
}

void freed(CUdeviceptr address) noexcept try {
    Event* const event = Event::current();
    if (event == nullptr || event->begin() == 0) return;
    auto& s = state();
    bool renewed = false;
    {
        const Locked lock(s.mutex);
        const auto live = s.live.find(address);
        if (live == s.live.end()) return;
        renewed = live->second.second;
        if (s.gone.size() < kMostRanges) ++s.gone[live->second.first];
        s.live.erase(live);
    }
    if (renewed) event->add(Cost::RenewedTicks, ticks::now() - event->begin());
} catch (const std::bad_alloc&) {
}

}  // namespace hpe::wasted
