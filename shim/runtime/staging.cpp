// SPDX-License-Identifier: MIT
// One pool of blocks per context, and the two loops that keep blocks, helpers and the device busy.
#include "shim/runtime/staging.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "shim/base/machine.h"
#include "shim/base/shared_copy.h"
#include "shim/base/spin_lock.h"
#include "shim/runtime/by_context.h"
#include "shim/runtime/options.h"
#include "shim/runtime/pinned.h"
#include "shim/runtime/real.h"
#include "shim/runtime/trace.h"

namespace hpe::staging {

struct Pool {
    static constexpr unsigned kMost = 128;

    std::atomic<CUcontext> context{nullptr};
    SpinLock lock;  // guards what follows
    std::array<Block, kMost> blocks{};
    std::array<bool, kMost> held{};
    unsigned count = 0;
    std::atomic<bool> met{false};  // the helpers know where its device is
    CUstream to_device = nullptr, to_host = nullptr;
};

namespace {

using copiers::Reader;
using copiers::Rows;

// Below this a job costs more to hand over than to copy, and a transfer more to enqueue than to make: in pieces of
// 256 KiB a copy of 1 MiB reaches 22 GB/s on an H200, in pieces of 512 KiB 24.5. What arrives lies in few caches, and
// is drained the faster the more helpers take part (1 MiB: 15.5 GB/s in jobs of 64 KiB, 19 in jobs of 32).
constexpr std::size_t kSmallestFill = std::size_t{64} << 10, kSmallestDrain = std::size_t{32} << 10;
constexpr std::size_t kSmallestPiece = std::size_t{512} << 10;
// A copy in the fault path that helpers take part in: most of it is memory that nobody has touched yet.
constexpr std::size_t kWorthATeam = std::size_t{512} << 10;
constexpr std::size_t kLargestJob = std::size_t{512} << 10;
// Seen on H200's hosts: a block that was filled through the caches of several processors reaches the device slowly at
// first (22 instead of 39 GB/s for 16 MiB), in the end faster than others (52 instead of 40 to 47 GB/s for 1 GiB).
constexpr std::size_t kFillsCaches = std::size_t{128} << 20;
// What is too large to be read from a cache afterwards is written past it.
constexpr std::size_t kOutgrowsCaches = std::size_t{32} << 20;

constinit ByContext<Pool> pools;
constinit std::size_t block_bytes = std::size_t{4} << 20;
constinit unsigned wanted_helpers = 0;
constinit bool fixed_helpers = false;  // the number is the user's
constinit bool copies_shared = false;
constinit std::atomic<unsigned> active{0};  // copies under way

CUresult new_stream(CUstream& stream) noexcept {
    if (stream != nullptr) return CUDA_SUCCESS;
    const auto result = twice([&] { return driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0); });
    if (result != CUDA_SUCCESS) stream = nullptr;
    return result;
}

// Adds up to `more` blocks. The pool is locked, its context current.
void grow(Pool& pool, unsigned more) noexcept {
    more = std::min(more, Pool::kMost - pool.count);
    if (new_stream(pool.to_device) != CUDA_SUCCESS || new_stream(pool.to_host) != CUDA_SUCCESS) return;
    unsigned granted = 0;
    while (granted < more && pinned::take(block_bytes)) ++granted;
    if (granted == 0) return;
    void* memory = nullptr;
    const auto bytes = granted * block_bytes;
    if (twice([&] { return driver.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE); }) != CUDA_SUCCESS) {
        pinned::give_back(bytes);
        return;
    }
    for (unsigned i = 0; i < granted; ++i) {
        Block& block = pool.blocks[pool.count];
        block = {};
        block.memory = static_cast<std::byte*>(memory) + i * block_bytes;
        if (make_event(block) == CUDA_SUCCESS) pool.held[pool.count++] = false;
    }
}

// Whether the block may be written. With `wait` it waits; then only an error says no.
bool is_free(Block& block, bool wait, CUresult& result) noexcept {
    if (!block.in_flight) return true;
    auto said = wait ? CUDA_ERROR_NOT_READY : driver.cuEventQuery(block.event);
    // A question that fails is asked again, and then waits for its answer.
    if (said != CUDA_SUCCESS && (wait || said != CUDA_ERROR_NOT_READY)) {
        said = twice([&] { return driver.cuEventSynchronize(block.event); });
    }
    if (said == CUDA_SUCCESS) {
        block.in_flight = false;
        return true;
    }
    if (said != CUDA_ERROR_NOT_READY) {
        block.broken = true;
        result = said;
    }
    return false;
}

// Rows so narrow that copying them past the caches, which is waited for at the end of each, gains nothing.
bool narrow(const Extent& extent) noexcept { return extent.rows > 1 && extent.width < std::size_t{4096}; }

// How blocks are filled for a copy to the device. A thread shares its copies at half the speed that it writes past its
// caches: where few of them fill blocks the device would wait (28 instead of 45 GB/s with five).
Reader reader_of_blocks(const Extent& extent, unsigned team) noexcept {
    constexpr unsigned kMany = 8;
    constexpr std::size_t kOutweighs = std::size_t{8} << 20;
    const auto bytes = extent.bytes();
    const bool sharing = copies_shared && team >= kMany;
    if (bytes >= kFillsCaches) return Reader::Processor;
    // 1 MiB in rows of 1000 bytes: 15 GB/s shared, 12 not; 16 MiB 38 and 19.
    if (narrow(extent)) return sharing ? Reader::Device : Reader::Processor;
    return sharing && bytes >= kOutweighs ? Reader::Device : Reader::Nobody;
}

// How they are drained.
Reader reader_of_memory(const Extent& extent) noexcept {
    return extent.bytes() >= kOutgrowsCaches && !narrow(extent) ? Reader::Nobody : Reader::Processor;
}

std::size_t in_pages(std::size_t bytes) noexcept { return (bytes + 4095) / 4096 * 4096; }

// A copy is cut into pieces, one transfer and one block each, and a piece into jobs. The whole team works on the oldest
// piece, so that the device has it soon; the first of a small copy are small. A piece is whole rows where there are
// several, and lies in its block without gaps.
class Pieces {
public:
    enum class Way : std::uint8_t { Fill, Drain };
    Pieces(const Extent& extent, const Lane& lane, Way way) noexcept : extent_(extent), bytes_(extent.bytes()) {
        const auto most = lane.block_bytes();
        piece_ = std::clamp(in_pages(fit(lane, way)), std::min(kSmallestPiece, most), most);
        const auto share = lane.team() == 0 ? piece_ : in_pages(piece_ / (lane.team() + 1));
        job_ = std::min(std::clamp(share, way == Way::Fill ? kSmallestFill : kSmallestDrain, kLargestJob), piece_);
        if (in_rows()) piece_ = std::max(piece_ / extent.width, std::size_t{1}) * extent.width;
    }
    std::size_t count() const noexcept { return (bytes_ + piece_ - 1) / piece_; }
    std::size_t begin(std::size_t piece) const noexcept { return piece * piece_; }
    std::size_t size(std::size_t piece) const noexcept { return std::min(piece_, bytes_ - begin(piece)); }
    std::size_t job() const noexcept { return job_; }

    std::size_t on_device(std::size_t piece) const noexcept { return begin_at(piece, extent_.device_pitch); }
    Rows filling(std::size_t piece, std::byte* block, const std::byte* host) const noexcept {
        host += begin_at(piece, extent_.host_pitch);
        if (!in_rows()) return {block, host, size(piece)};
        return {block, host, extent_.width, rows(piece), extent_.width, extent_.host_pitch};
    }
    Rows draining(std::size_t piece, std::byte* host, const std::byte* block) const noexcept {
        host += begin_at(piece, extent_.host_pitch);
        if (!in_rows()) return {host, block, size(piece)};
        return {host, block, extent_.width, rows(piece), extent_.host_pitch, extent_.width};
    }
    // Of a piece between its block and where it lies on the device.
    CUresult send_to(CUdeviceptr device, std::size_t piece, const std::byte* block, CUstream stream) const noexcept {
        if (!in_rows()) return driver.cuMemcpyHtoDAsync_v2(device, block, size(piece), stream);
        auto copy = rows_of(piece);
        copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = block, copy.srcPitch = extent_.width;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE, copy.dstDevice = device, copy.dstPitch = extent_.device_pitch;
        return driver.cuMemcpy2DAsync_v2(&copy, stream);
    }
    CUresult send_from(CUdeviceptr device, std::size_t piece, std::byte* block, CUstream stream) const noexcept {
        if (!in_rows()) return driver.cuMemcpyDtoHAsync_v2(block, device, size(piece), stream);
        auto copy = rows_of(piece);
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE, copy.srcDevice = device, copy.srcPitch = extent_.device_pitch;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = block, copy.dstPitch = extent_.width;
        return driver.cuMemcpy2DAsync_v2(&copy, stream);
    }

private:
    bool in_rows() const noexcept { return extent_.rows > 1; }
    std::size_t rows(std::size_t piece) const noexcept { return size(piece) / extent_.width; }
    std::size_t begin_at(std::size_t piece, std::size_t pitch) const noexcept {
        return in_rows() ? begin(piece) / extent_.width * pitch : begin(piece);
    }
    CUDA_MEMCPY2D rows_of(std::size_t piece) const noexcept {
        CUDA_MEMCPY2D copy{};
        copy.WidthInBytes = extent_.width;
        copy.Height = rows(piece);
        return copy;
    }

    std::size_t fit(const Lane& lane, Way way) const noexcept {
        // The link is kept busy by the other copies, and the driver by their calls: eight threads with 4 MiB each reach
        // 48 GB/s in halves, 31 in pieces of 256 KiB.
        if (lane.crowded()) return bytes_ / 2;
        // Each piece costs an event and a wait, and what comes last is drained while nothing else moves.
        if (way == Way::Drain) return bytes_ / 8;
        constexpr std::size_t middling = std::size_t{1} << 20;
        return std::max(bytes_ / 32, std::min(bytes_ / 4, middling));
    }
    const Extent extent_;
    const std::size_t bytes_;
    std::size_t piece_, job_;
};

// The jobs of one piece.
class Crowd {
public:
    void begin(const Rows& piece, std::size_t job_bytes, bool alone, Reader reader) noexcept {
        count_ = 0;
        if (alone) {
            copiers::move(piece, reader);
        } else if (piece.count > 1) {
            const auto rows = std::max(job_bytes / piece.width, piece.count / kMost + 1);
            for (std::size_t at = 0; at < piece.count; at += rows) {
                jobs_[count_++].begin(piece.part(at, std::min(rows, piece.count - at)), reader);
            }
        } else {
            const auto bytes = piece.width;
            job_bytes = std::max(job_bytes, in_pages((bytes + kMost - 1) / kMost));
            for (std::size_t at = 0; at < bytes; at += job_bytes) {
                jobs_[count_++].begin({piece.to + at, piece.from + at, std::min(job_bytes, bytes - at)}, reader);
            }
        }
    }
    bool done() const noexcept {
        return std::all_of(jobs_.begin(), jobs_.begin() + count_, [](const auto& job) { return job.done(); });
    }
    // The caller's share: one job that no helper has begun.
    bool help() noexcept {
        return std::any_of(jobs_.begin(), jobs_.begin() + count_, [](auto& job) { return job.help(); });
    }
    void finish() noexcept {
        for (unsigned i = 0; i < count_; ++i) jobs_[i].finish();
        count_ = 0;
    }

private:
    static constexpr unsigned kMost = 64;
    std::array<copiers::Job, kMost> jobs_;
    unsigned count_ = 0;
};
using Crowds = std::array<Crowd, Lane::kMost>;

// Enqueues the transfer, and with `mark` the event that tells its end.
template <class Transfer>
CUresult send(Block& block, CUstream stream, bool mark, Transfer&& transfer) noexcept {
    const auto sent = twice(transfer);
    if (sent != CUDA_SUCCESS) return sent;
    block.in_flight = true;
    const auto recorded = mark ? twice([&] { return driver.cuEventRecord(block.event, stream); }) : CUDA_SUCCESS;
    block.broken = recorded != CUDA_SUCCESS;
    return recorded;
}

}  // namespace

CUresult make_event(Block& block) noexcept {
    const auto result = twice([&] { return driver.cuEventCreate(&block.event, CU_EVENT_DISABLE_TIMING); });
    if (result != CUDA_SUCCESS) block.event = nullptr;
    return result;
}

void configure(unsigned threads, std::size_t bytes) noexcept {
    block_bytes = bytes;
    copies_shared = can_share_copies();
    // So many fill a PCIe 5 link, and other processes share the node. With 12 of an H200's host copies of 64 and 120
    // MiB to the device reach 43 to 49 GB/s, with 14 always 48.
    constexpr unsigned kEnough = 14;
    fixed_helpers = threads != kAutomatic;
    wanted_helpers = threads != kAutomatic ? threads : std::min(machine::processors() - 1, kEnough);
}

unsigned helpers() noexcept { return wanted_helpers; }

namespace {

// The processors near the current context's device; all of the process's where it has too few of them.
bool near_current(cpu_set_t& near) noexcept {
    constexpr int kFew = 4;
    CUdevice device = 0;
    char bus[32] = "";
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           driver.cuDeviceGetPCIBusId(bus, sizeof bus, device) == CUDA_SUCCESS && machine::processors_near(bus, near) &&
           CPU_COUNT(&near) >= kFew;
}

// Near the first device that they serve; anywhere once they serve one that is elsewhere.
struct Home {
    std::mutex mutex;
    bool known = false, narrow = false;
    cpu_set_t processors{};
};
constinit Home home;

unsigned place_helpers() noexcept {
    cpu_set_t near;
    const bool narrow = near_current(near);
    std::scoped_lock lock(home.mutex);
    if (!home.known) {
        home.known = true;
        home.narrow = narrow;
        if (narrow) copiers::place(home.processors = near);
    } else if (home.narrow && (!narrow || !CPU_EQUAL(&near, &home.processors))) {
        home.narrow = false;
        // The main thread's: whoever calls may have been bound to less.
        if (sched_getaffinity(getpid(), sizeof near, &near) == 0) copiers::place(near);
    }
    const auto room = home.narrow ? static_cast<unsigned>(CPU_COUNT(&home.processors)) - 1 : wanted_helpers;
    return fixed_helpers ? wanted_helpers : std::min(wanted_helpers, room);
}

unsigned start_helpers(Pool& pool) noexcept {
    if (pool.met.exchange(true, std::memory_order_relaxed)) return copiers::start(wanted_helpers);
    return copiers::start(place_helpers());
}

}  // namespace

unsigned start_helpers() noexcept {
    CUcontext context = nullptr;
    driver.cuCtxGetCurrent(&context);
    Pool* pool = context != nullptr ? pools.of(context) : nullptr;
    return pool != nullptr ? start_helpers(*pool) : copiers::start(wanted_helpers);
}

Lane::Lane(CUcontext context, std::size_t bytes, bool (*may_pin)()) noexcept
    : context_(context), pool_(pools.of(context)), block_bytes_(staging::block_bytes) {
    if (pool_ == nullptr) return;
    const auto others = active.fetch_add(1, std::memory_order_relaxed);
    // Callers copy, too: with half as many of them as helpers, handing over would only cost.
    team_ = start_helpers(*pool_) / (others + 1);
    if (others != 0 && team_ < 2) team_ = 0;
    const auto most = std::min<std::size_t>((bytes + kSmallestPiece - 1) / kSmallestPiece, team_ != 0 ? kMost : 2);
    const auto collect = [&] {
        for (unsigned i = 0; i < pool_->count && count_ < most; ++i) {
            auto ignored = CUDA_SUCCESS;
            if (pool_->held[i] || pool_->blocks[i].broken || !is_free(pool_->blocks[i], false, ignored)) continue;
            pool_->held[i] = true;
            blocks_[count_++] = &pool_->blocks[i];
        }
    };
    {
        std::scoped_lock lock(pool_->lock);
        collect();
        if (count_ == most || pool_->count == Pool::kMost) return;
    }
    // Asked without the lock: the answer may take a while.
    if (!may_pin()) return;
    std::scoped_lock lock(pool_->lock);
    grow(*pool_, static_cast<unsigned>(most) - count_);
    collect();
    grew_ = true;
}

Lane::Lane(CUcontext context, std::span<Block> own, std::size_t bytes_of_each, std::size_t bytes) noexcept
    : context_(context),
      block_bytes_(bytes_of_each),
      count_(static_cast<unsigned>(std::min<std::size_t>(own.size(), kMost))),
      team_(bytes >= kWorthATeam ? copiers::running() : 0) {
    for (unsigned i = 0; i < count_; ++i) blocks_[i] = &own[i];
}

Lane::~Lane() {
    if (pool_ == nullptr) return;
    active.fetch_sub(1, std::memory_order_relaxed);
    std::scoped_lock lock(pool_->lock);
    for (unsigned i = 0; i < count_; ++i) {
        const auto index = blocks_[i] - pool_->blocks.data();
        pool_->held[static_cast<std::size_t>(index)] = false;
    }
}

bool Lane::owns(CUstream stream) const noexcept {
    return pool_ == nullptr || stream == pool_->to_device || stream == pool_->to_host;
}
CUstream Lane::to_device() const noexcept { return pool_->to_device; }
CUstream Lane::to_host() const noexcept { return pool_->to_host; }

bool takes(const Extent& extent) noexcept { return extent.rows == 1 || extent.width <= block_bytes; }

bool has_room(const Lane& lane, const Extent& extent) noexcept {
    return Pieces(extent, lane, Pieces::Way::Fill).count() <= lane.size();
}

CUresult copy_to_device(Lane& lane, CUdeviceptr to, const std::byte* from, const Extent& extent, CUstream stream,
                        bool wait) noexcept {
    const auto bytes = extent.bytes();
    trace::Transfer traced(trace::Kind::Staging, "staged copy to device", bytes);
    trace::InStream in_stream(false);
    const bool ends = wait && lane.owns(stream);
    const Pieces pieces(extent, lane, Pieces::Way::Fill);
    const auto count = pieces.count(), window = std::size_t{lane.size()};
    Crowds crowds;
    auto result = CUDA_SUCCESS;
    std::size_t begun = 0, sent = 0;
    while (sent < count) {
        while (begun < count && begun - sent < window && result == CUDA_SUCCESS &&
               is_free(lane[begun], begun == sent, result)) {
            auto& crowd = crowds[begun % window];
            crowd.begin(pieces.filling(begun, lane[begun].memory, from), pieces.job(), lane.team() == 0,
                        reader_of_blocks(extent, lane.team()));
            ++begun;
            if (crowd.done()) break;  // let the device have it
        }
        if (begun == sent) break;
        auto& oldest = crowds[sent % window];
        while (!oldest.done() && oldest.help()) {
        }
        oldest.finish();
        if (result == CUDA_SUCCESS) {
            Block& block = lane[sent];
            const auto device = to + pieces.on_device(sent);
            // An event where somebody will ask for it.
            if (ends) in_stream.sent(pieces.size(sent));
            const bool mark = !wait || sent + window < count || sent + 1 == count;
            result = send(block, stream, mark, [&] { return pieces.send_to(device, sent, block.memory, stream); });
        }
        ++sent;
    }
    if (!wait) {
        if (result == CUDA_SUCCESS) traced.done();
        return result;
    }
    // The last one's event says it of all; after an error the stream itself does.
    const auto waited = result == CUDA_SUCCESS ? twice([&] { return driver.cuEventSynchronize(lane[count - 1].event); })
                                               : twice([&] { return driver.cuStreamSynchronize(stream); });
    in_stream.ended(lane.context());
    for (unsigned i = 0; i < lane.size(); ++i) {
        if (waited == CUDA_SUCCESS) lane[i].in_flight = false;
        if (waited != CUDA_SUCCESS && lane[i].in_flight) lane[i].broken = true;
    }
    if (result == CUDA_SUCCESS) result = waited;
    if (result == CUDA_SUCCESS) traced.done();
    return result;
}

CUresult copy_to_host(Lane& lane, std::byte* to, CUdeviceptr from, const Extent& extent, CUstream stream) noexcept {
    const auto bytes = extent.bytes();
    trace::Transfer traced(trace::Kind::Staging, "staged copy to host", bytes);
    trace::InStream in_stream(true);
    const bool own = lane.owns(stream);
    const Pieces pieces(extent, lane, Pieces::Way::Drain);
    const auto count = pieces.count(), window = std::size_t{lane.size()};
    Crowds crowds;
    auto result = CUDA_SUCCESS;
    std::size_t asked = 0, arrived = 0, drained = 0;
    while (drained < count) {
        while (asked < count && asked - drained < window && result == CUDA_SUCCESS) {
            Block& block = lane[asked];
            if (!is_free(block, true, result)) break;
            if (own) in_stream.sent(pieces.size(asked));
            const auto device = from + pieces.on_device(asked);
            result = send(block, stream, true, [&] { return pieces.send_from(device, asked, block.memory, stream); });
            if (result == CUDA_SUCCESS) ++asked;
        }
        // With nothing to drain there is nothing to do but wait for the device.
        while (arrived < asked && is_free(lane[arrived], arrived == drained, result)) {
            crowds[arrived % window].begin(pieces.draining(arrived, to, lane[arrived].memory), pieces.job(),
                                           lane.team() == 0, reader_of_memory(extent));
            if (++arrived == count) in_stream.ended(lane.context());
        }
        if (drained == arrived) break;  // an error
        auto& oldest = crowds[drained % window];
        if (!oldest.help() && (oldest.done() || arrived == asked)) oldest.finish();
        if (oldest.done()) {
            oldest.finish();
            ++drained;
        }
    }
    if (result == CUDA_SUCCESS) traced.done();
    return result;
}

void forget(CUcontext context) noexcept {
    Pool* pool = pools.known(context);
    if (pool == nullptr) return;
    std::scoped_lock lock(pool->lock);
    pinned::give_back(pool->count * block_bytes);
    pool->count = 0;
    pool->to_device = pool->to_host = nullptr;
}

}  // namespace hpe::staging
