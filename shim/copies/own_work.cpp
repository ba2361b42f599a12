// SPDX-License-Identifier: MIT
// Streams of our own, and copies in them.
#include "shim/copies/own_work.h"

#include <algorithm>
#include <atomic>

#include "shim/base/address.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/lease.h"
#include "shim/copies/pageable.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"

namespace hpe {

namespace {

struct Own {
    SpinLock lock;
    CUstream stream HPE_GUARDED_BY(lock) = nullptr;
};
constinit ByContext<Own> owns;
constinit std::atomic<std::uint64_t> own_writes{0};

std::uint64_t work_of_program() noexcept { return in_flight.work() - own_writes.load(std::memory_order_relaxed); }

// The context is current.
CUstream stream_in(CUcontext context) noexcept {
    auto* const own = owns.of(context);
    if (own == nullptr) return nullptr;
    const Locked lock(own->lock);
    const Inside inside;
    make_stream(own->stream);
    return own->stream;
}

// The object of a range that is short and lies on the device.
Object* small_on_device(std::uintptr_t begin, std::size_t bytes) noexcept {
    return bytes < bulk::kSmallest && mostly_on_device(begin, bytes) ? coherence().object_of(begin) : nullptr;
}

// A large copy is made in pieces where that is faster, or timed: it has ended by then. run() waits for any other.
template <class Enqueue>
CUresult copy_in_order(const pageable::Copy& copy, Enqueue&& enqueue) noexcept {
    if (copy.extent.bytes() < Crossover::kSmallest) return enqueue();
    return pageable::copy(copy, [&] {
        const auto made = enqueue();
        return made == CUDA_SUCCESS ? driver.cuStreamSynchronize(copy.stream) : made;
    });
}

}  // namespace

bool mostly_on_device(std::uintptr_t begin, std::size_t bytes) noexcept {
    Object* const object = coherence().object_of(begin);
    if (object == nullptr || bytes == 0) return false;
    const ObjectUse use(*object, begin);
    if (!use || bytes > object->bytes_from(begin)) return false;
    if (object->host_valid_blocks.load(std::memory_order_acquire) == 0) return true;
    std::size_t on_host = 0;
    const auto end = begin + bytes;
    for (auto at = begin; at < end;) {
        const auto index = object->block_at(at);
        const auto next = std::min(end, object->base + object->offset_of(index) + object->bytes_of(index));
        if (valid_on_host(object->block(index).peek().state)) on_host += next - at;
        at = next;
    }
    return 2 * on_host < bytes;
}

bool copied_by_device(std::uintptr_t begin, std::size_t bytes) noexcept {
    if (bytes >= bulk::kSmallest) return mostly_on_device(begin, bytes);
    const Object* const object = small_on_device(begin, bytes);
    return object != nullptr && object->small_copies.by_device(work_of_program());
}

CountedCopy::CountedCopy(std::uintptr_t begin, std::size_t bytes) noexcept : object_(small_on_device(begin, bytes)) {
    if (object_ != nullptr && object_->small_copies.by_device(work_of_program())) smallest_ = 1;
}

CountedCopy::~CountedCopy() {
    if (object_ != nullptr) object_->small_copies.made(work_of_program());
}

OwnWork::OwnWork(void* context, bulk::Order order) noexcept : in_order_(context, order) {
    if (in_order_) stream_ = stream_in(static_cast<CUcontext>(context));
}

CUresult OwnWork::to_host(std::byte* to, CUdeviceptr from, std::size_t bytes) noexcept {
    using Direction = pageable::Copy::Direction;
    return copy_in_order({Direction::ToHost, from, to, {bytes}, stream_, Flavour::Legacy, pageable::Return::Done},
                         [&] { return driver.cuMemcpyDtoHAsync_v2(to, from, bytes, stream_); });
}

CUresult OwnWork::to_device(CUdeviceptr to, const std::byte* from, std::size_t bytes) noexcept {
    using Direction = pageable::Copy::Direction;
    auto* const host = const_cast<std::byte*>(from);
    return copy_in_order({Direction::ToDevice, to, host, {bytes}, stream_, Flavour::Legacy, pageable::Return::Done},
                         [&] { return driver.cuMemcpyHtoDAsync_v2(to, from, bytes, stream_); });
}

void OwnWork::enqueued() const noexcept {
    own_writes.fetch_add(1, std::memory_order_relaxed);
    in_flight.enqueued(stream_, Flavour::Legacy, this_thread.slot);
}

CUresult OwnWork::wait() noexcept { return driver.cuStreamSynchronize(stream_); }

bool OwnWork::begins_at_once(void* context) noexcept {
    CUstream stream = nullptr;
    if (auto* const own = owns.known(static_cast<CUcontext>(context)); own != nullptr) {
        const Locked lock(own->lock);
        stream = own->stream;
    }
    return in_flight.idle(stream != nullptr ? in_flight.mark(stream, Flavour::Legacy).record : nullptr);
}

void OwnWork::forget(CUcontext context) noexcept {
    auto* const own = owns.known(context);
    if (own == nullptr) return;
    const Locked lock(own->lock);
    own->stream = nullptr;
}

OwnTransfer::OwnTransfer(To to, const char* name, std::uintptr_t at, std::size_t bytes) noexcept
    : to_(to),
      bytes_(bytes),
      object_(coherence().object_of(at)),
      traced_(to == To::Host ? trace::Kind::Fetch : trace::Kind::Flush, name, bytes,
              object_ != nullptr ? object_->report_id_at(at - object_->base) : 0),
      traffic_(object_ != nullptr ? object_->traffic_at(at - object_->base) : nobodys_traffic) {}

void OwnTransfer::done() noexcept {
    traced_.done();
    to_ == To::Host ? traffic_.moved_to_host(bytes_) : traffic_.moved_to_device(bytes_);
}

bool copy_within_device(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) noexcept {
    if (bytes == 0) return true;
    const Object* const object = coherence().object_of(from);
    if (object == nullptr) return false;
    OwnWork work(object->context);
    return work && work.run({from, bytes}, {to, bytes}, [&] {
        return driver.cuMemcpyDtoDAsync_v2(to, from, bytes, work.stream());
    }) == CUDA_SUCCESS;
}

std::size_t load_by_device(std::byte* to, const void* from, std::size_t bytes, const void* caller) noexcept {
    const CountedCopy counted(address(from), bytes);
    if (bytes < counted.smallest()) return lease::load(to, from, bytes, caller);
    std::size_t done = 0;
    while (done < bytes) {
        const auto at = address(from) + done;
        const auto stretch = bulk::next(address(to) + done, at, bytes - done, counted.smallest());
        if (stretch.context != nullptr) {
            OwnWork work(stretch.context);
            OwnTransfer transfer(OwnTransfer::To::Host, "copy", at, stretch.bytes);
            const auto copy = [&] { return work.to_host(to + done, at, stretch.bytes); };
            if (work && work.run({at, stretch.bytes}, {}, copy) == CUDA_SUCCESS) {
                transfer.done();
                done += stretch.bytes;
                continue;
            }
        }
        const auto loaded = lease::load(to + done, reinterpret_cast<const void*>(at), stretch.bytes, caller);
        done += loaded;
        if (loaded != stretch.bytes) break;
    }
    return done;
}

std::size_t store_by_device(void* to, const std::byte* from, std::size_t bytes, const void* caller) noexcept {
    const CountedCopy counted(address(to), bytes);
    if (bytes < counted.smallest()) return lease::store(to, from, bytes, caller);
    std::size_t done = 0;
    while (done < bytes) {
        const auto at = address(to) + done;
        const auto stretch = bulk::next(at, address(from) + done, bytes - done, counted.smallest());
        if (stretch.context != nullptr) {
            OwnWork work(stretch.context);
            OwnTransfer transfer(OwnTransfer::To::Device, "copy", at, stretch.bytes);
            const auto copy = [&] { return work.to_device(at, from + done, stretch.bytes); };
            if (work && work.run({}, {at, stretch.bytes}, copy) == CUDA_SUCCESS) {
                transfer.done();
                done += stretch.bytes;
                continue;
            }
        }
        const auto stored = lease::store(reinterpret_cast<void*>(at), from + done, stretch.bytes, caller);
        done += stored;
        if (stored != stretch.bytes) break;
    }
    return done;
}

}  // namespace hpe
