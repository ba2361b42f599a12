// SPDX-License-Identifier: MIT
// The kernel of a context, memory on the device, and launches piece by piece.
#include "shim/copies/packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/lease.h"
#include "shim/copies/own_work.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/driver/own_kernel.h"

namespace hpe::packing {

namespace {

constexpr char kKernel[] =
#include "shim/copies/pack_kernel.inc"
    ;

constexpr std::size_t kSmallestBlock = std::size_t{64} << 10;
// A longer message is packed in parts of so many bytes.
constexpr std::size_t kPart = std::size_t{8} << 20;
// Of a context, with the lists of all datatypes. Nothing of it is freed before the context ends, since freeing waits
// for the device; what is given back is used again.
constexpr std::size_t kMostOnDevice = std::size_t{64} << 20, kMostOfLists = kMostOnDevice / 2;

// Blocks of powers of two.
struct Tools {
    Mutex mutex;
    OwnKernel kernel;
    std::uint64_t ended HPE_GUARDED_BY(mutex) = 0;  // how many contexts had this place before
    std::size_t taken HPE_GUARDED_BY(mutex) = 0;
    std::array<std::vector<CUdeviceptr>, 64> idle HPE_GUARDED_BY(mutex);  // by the exponent of their size
};
ByContext<Tools>& all_tools() noexcept {
    static NeverDestroyed<ByContext<Tools>> tools;
    return *tools;
}

// One block, from when it is taken until it is destroyed.
class Block {
public:
    Block(Tools& tools, CUcontext context, std::size_t bytes, std::size_t most) noexcept
        : tools_(tools),
          context_(context),
          exponent_(static_cast<unsigned>(std::bit_width(std::max(bytes, kSmallestBlock) - 1))) {
        const Locked lock(tools_.mutex);
        ended_ = tools_.ended;
        auto& idle = tools_.idle[exponent_];
        if (!idle.empty()) {
            at_ = idle.back();
            idle.pop_back();
        } else if (tools_.taken + this->bytes() <= most) {
            at_ = make(idle);
            if (at_ != 0) tools_.taken += this->bytes();
        }
    }
    ~Block() {
        if (at_ == 0) return;
        const Locked lock(tools_.mutex);
        if (is_of(context_)) tools_.idle[exponent_].push_back(at_);
    }
    // A transfer from or to it failed, and its end cannot be told: it is never used again.
    void abandon() noexcept { at_ = 0; }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    CUdeviceptr at() const noexcept { return at_; }
    std::size_t bytes() const noexcept { return std::size_t{1} << exponent_; }
    // Whether that context lives and has it.
    bool lives_in(CUcontext context) const noexcept {
        const Locked lock(tools_.mutex);
        return is_of(context);
    }

private:
    bool is_of(CUcontext context) const noexcept HPE_REQUIRES(tools_.mutex) {
        return context_ == context && ended_ == tools_.ended;
    }
    // Waits for the device, which may be waiting for this thread: so only if it is idle.
    CUdeviceptr make(std::vector<CUdeviceptr>& idle) noexcept try {
        if (!in_flight.idle()) return 0;
        idle.reserve(idle.capacity() + 1);  // so that giving back needs no memory
        const Inside inside;
        CUdeviceptr at = 0;
        return driver.cuMemAlloc_v2(&at, bytes()) == CUDA_SUCCESS ? at : 0;
    } catch (const std::bad_alloc&) {
        return 0;
    }

    Tools& tools_;
    const CUcontext context_;
    const unsigned exponent_;
    std::uint64_t ended_ = 0;
    CUdeviceptr at_ = 0;
};

// The pieces of a list, sent there; nullptr: they are not.
std::shared_ptr<Block> send(const Layout::List& list, Tools& tools, OwnWork& work, CUcontext context) noexcept try {
    const auto bytes = list.pieces.size() * sizeof list.pieces[0];
    auto block = std::make_shared<Block>(tools, context, bytes, kMostOfLists);
    if (block->at() == 0) return nullptr;
    const auto* const from = reinterpret_cast<const std::byte*>(list.pieces.data());
    if (work.run({}, {}, [&] { return work.to_device(block->at(), from, bytes); }) == CUDA_SUCCESS) return block;
    block->abandon();
    return nullptr;
} catch (const std::bad_alloc&) {
    return nullptr;
}

// The same, kept there for the next message of that datatype.
std::shared_ptr<Block> on_device(const Layout::List& list, Tools& tools, OwnWork& work, CUcontext context) noexcept {
    static constinit Mutex mutex;  // of all lists: which block each has
    const auto kept = [&] {
        const Locked lock(mutex);
        return std::static_pointer_cast<Block>(list.on_device);
    }();
    if (kept != nullptr && kept->lives_in(context)) return kept;
    // That waits for the device, which may be waiting for a thread that packs, too. Either may send one.
    const auto sent = send(list, tools, work, context);
    auto replaced = std::shared_ptr<void>{};  // ends without the lock
    const Locked lock(mutex);
    const auto now = std::static_pointer_cast<Block>(list.on_device);
    if (now != nullptr && now->lives_in(context)) return now;
    if (sent != nullptr) replaced = std::exchange(list.on_device, sent);
    return sent;
}

unsigned clamped(std::uint64_t n) noexcept { return static_cast<unsigned>(std::min<std::uint64_t>(n, UINT_MAX)); }

bool move(Direction direction, const Layout& layout, std::uintptr_t at, std::byte* packed, std::size_t bytes) noexcept {
    const Object* const object = coherence().object_of(at + static_cast<std::uintptr_t>(layout.begin()));
    if (object == nullptr || bytes == 0 || bytes > INT_MAX) return false;
    const auto span = span_of(layout, at, object->context);
    if (!span) return false;
    const auto packed_at = reinterpret_cast<std::uintptr_t>(packed);
    const Object* const there = coherence().object_of(packed_at);
    if (there == nullptr && lease::concerns(packed, bytes)) return false;
    if (there != nullptr && (there->context != object->context || bytes > there->bytes_from(packed_at))) {
        return false;
    }
    auto* const context = static_cast<CUcontext>(object->context);
    OwnWork work(context);
    if (!work) return false;
    auto launch = prepare(direction, layout, at, there != nullptr ? bytes | packed_at : bytes, work, context);
    if (!launch) return false;
    const bool packs = direction == Direction::Pack;
    const DeviceRange& unpacked = *span;
    if (there != nullptr) {
        const DeviceRange all{packed_at, bytes};
        return work.run(packs ? unpacked : all, packs ? all : unpacked,
                        [&] { return (*launch)(packed_at, 0, bytes); }) == CUDA_SUCCESS;
    }
    Block part(*all_tools().of(context), context, std::min(bytes, kPart), kMostOnDevice);
    if (part.at() == 0) return false;
    for (std::size_t done = 0; done < bytes;) {
        const auto end = std::min(bytes, done + part.bytes());
        OwnTransfer transfer(packs ? OwnTransfer::To::Host : OwnTransfer::To::Device, packs ? "pack" : "unpack",
                             unpacked.begin, end - done);
        const auto result = work.run(packs ? unpacked : DeviceRange{}, packs ? DeviceRange{} : unpacked, [&] {
            if (packs) {
                const auto launched = (*launch)(part.at(), done, end);
                return launched == CUDA_SUCCESS ? work.to_host(packed + done, part.at(), end - done) : launched;
            }
            const auto sent = work.to_device(part.at(), packed + done, end - done);
            return sent == CUDA_SUCCESS ? (*launch)(part.at(), done, end) : sent;
        });
        if (result != CUDA_SUCCESS) {
            part.abandon();
            return false;
        }
        transfer.done();
        done = end;
    }
    return true;
}

}  // namespace

Launch::Launch(const Layout& layout, std::uintptr_t at, unsigned unit) noexcept
    : memory_(at + static_cast<std::uintptr_t>(layout.offset())), width_(unit) {
    turn_ = clamped(layout.turn_bytes() / unit);
    counts_.fill(1);
    strides_.fill(0);
    auto place = Layout::kMostLoops - layout.loops().size();
    for (const auto& loop : layout.loops()) {
        counts_[place] = clamped(loop.count);
        strides_[place++] = loop.stride;
    }
}

CUresult Launch::operator()(CUdeviceptr packed, std::size_t begin, std::size_t end) noexcept {
    constexpr unsigned kThreads = 256, kMostBlocks = 2048;
    auto first = static_cast<unsigned>(begin / width_), last = static_cast<unsigned>(end / width_);
    void* parameters[] = {&packed,      &memory_,     &pieces_,     &count_,     &width_,     &direction_,
                          &first,       &last,        &turn_,       &counts_[1], &counts_[2], &counts_[3],
                          &strides_[0], &strides_[1], &strides_[2], &strides_[3]};
    const auto blocks = std::min((last - first + kThreads - 1) / kThreads, kMostBlocks);
    return driver.cuLaunchKernel(kernel_, blocks, 1, 1, kThreads, 1, 1, 0, stream_, parameters, nullptr);
}

std::optional<Launch> prepare(Direction direction, const Layout& layout, std::uintptr_t at, std::uint64_t aligned_as,
                              OwnWork& work, CUcontext context) noexcept {
    Tools* const tools = all_tools().of(context);
    if (tools == nullptr) return std::nullopt;
    aligned_as |= layout.unit(at);
    Launch launch(layout, at, static_cast<unsigned>(aligned_as & (~aligned_as + 1)));  // its lowest bit
    const auto* const list = layout.list();
    const auto pieces = list != nullptr ? on_device(*list, *tools, work, context) : nullptr;
    launch.kernel_ = tools->kernel.load(kKernel, "hpe_pack");
    if (launch.kernel_ == nullptr || (list != nullptr && pieces == nullptr)) return std::nullopt;
    launch.stream_ = work.stream();
    if (list != nullptr) {
        launch.pieces_ = pieces->at();
        launch.count_ = static_cast<unsigned>(list->pieces.size());
        launch.list_ = pieces;
    }
    launch.direction_ = static_cast<unsigned>(direction);
    return launch;
}

std::optional<DeviceRange> span_of(const Layout& layout, std::uintptr_t at, const void* context) noexcept {
    const auto begin = at + static_cast<std::uintptr_t>(layout.begin());
    const auto span = static_cast<std::size_t>(layout.end() - layout.begin());
    const Object* const object = coherence().object_of(begin);
    if (object == nullptr || object->context != context || span > object->bytes_from(begin)) {
        return std::nullopt;
    }
    return DeviceRange{begin, span};
}

bool worth_it(const Layout& layout, std::uintptr_t at) noexcept {
    const auto span = static_cast<std::size_t>(layout.end() - layout.begin());
    return !layout.is_dense() && span >= kSmallestSpan && layout.bytes() <= INT_MAX &&
           mostly_on_device(at + static_cast<std::uintptr_t>(layout.begin()), span);
}

bool pack(const Layout& layout, std::uintptr_t at, std::byte* packed, std::size_t bytes) noexcept {
    return move(Direction::Pack, layout, at, packed, bytes);
}

bool unpack(const Layout& layout, std::uintptr_t at, const std::byte* packed, std::size_t bytes) noexcept {
    return move(Direction::Unpack, layout, at, const_cast<std::byte*>(packed), bytes);
}

void forget(CUcontext context) noexcept {
    auto* const tools = all_tools().known(context);
    if (tools == nullptr) return;
    tools->kernel.forget();
    const Locked lock(tools->mutex);
    ++tools->ended;
    tools->taken = 0;
    for (auto& idle : tools->idle) idle.clear();
}

}  // namespace hpe::packing
