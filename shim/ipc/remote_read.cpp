// SPDX-License-Identifier: MIT
// Stretches of a read, and where each comes from and goes to.
#include "shim/ipc/remote_read.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "shim/base/active.h"
#include "shim/base/added.h"
#include "shim/base/address.h"
#include "shim/base/helper.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/coherence/coherence.h"
#include "shim/copies/own_work.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/imports.h"
#include "shim/ipc/other_images.h"
#include "shim/ipc/split_read.h"
#include "shim/observe/trace.h"

namespace hpe::ipc {

namespace {

constinit std::atomic<unsigned> arrivals{0};

}  // namespace

struct Reads {
    Mutex mutex;  // also of the imports
    std::vector<Arrival*> expected HPE_GUARDED_BY(mutex);

    static Reads& all() noexcept {
        static NeverDestroyed<Reads> reads;
        return *reads;
    }
    Arrival* arrival(std::uintptr_t host, std::size_t bytes) const noexcept HPE_REQUIRES(mutex) {
        for (Arrival* one : expected) {
            if (host >= one->host_ && host < one->host_ + one->bytes_ && bytes <= one->host_ + one->bytes_ - host) {
                return one;
            }
        }
        return nullptr;
    }
    template <class Enqueue>
    static bool begin(Arrival& to, const reading_devices::Place& place, OwnWork& work, DeviceRange writes,
                      Enqueue&& enqueue) noexcept;
    static bool to_object(pid_t process, Arrival& to, std::uintptr_t host, const imports::Found& from) noexcept;
    void forget(CUcontext context) noexcept HPE_REQUIRES(mutex) {
        for (Arrival* one : expected) one->copies_.forget(context);
    }
    static bool to_host(std::uintptr_t host, const imports::Found& from) noexcept;
    // From an image: 0, or an error number; nothing where that is not possible now.
    static std::optional<int> image_to_object(pid_t process, Arrival& to, std::uintptr_t host,
                                              const imports::Found& from) noexcept;
    static int image_to_host(pid_t process, std::uintptr_t host, const imports::Found& from) noexcept;
    int from_image(pid_t process, Arrival* to, std::uintptr_t host, const imports::Found& from) const noexcept
        HPE_REQUIRES(mutex);
    // Returns how many bytes came; with fewer, `error` is why.
    std::size_t copy(pid_t process, std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                     int& error) const noexcept HPE_REQUIRES(mutex);
};

Arrival::Arrival(const Object& object, std::uintptr_t device, const std::byte* host, std::size_t bytes) noexcept
    : device_(device), context_(object.context), host_(address(host)), bytes_(bytes) {
    again();
    auto& all = Reads::all();
    const Locked lock(all.mutex);
    added(all.expected, this);  // where it is not, its bytes come to host memory
    arrivals.fetch_add(1, std::memory_order_release);
}

Arrival::~Arrival() {
    auto& all = Reads::all();
    copies_.wait();
    const Locked lock(all.mutex);
    std::erase(all.expected, this);
    arrivals.fetch_sub(1, std::memory_order_release);
}

void Arrival::again() noexcept {
    copies_.wait();
    const bool idle = OwnWork::begins_at_once(context_);
    const Locked lock(Reads::all().mutex);
    on_device_ = 0;
    unpacking_.reset();
    idle_ = idle;
}

bool Arrival::under_way() const noexcept {
    const Locked lock(Reads::all().mutex);
    return copies_.any();
}

void Arrival::unpack(const Layout& layout, std::uintptr_t at) noexcept {
    const Locked lock(Reads::all().mutex);
    layout_ = layout;
    unpacked_at_ = at;
}

bool Arrival::unpacked() const noexcept {
    const Locked lock(Reads::all().mutex);
    return unpacking_.has_value();
}

// Unlocked while it waits: other messages come meanwhile, but none of this one.
std::optional<std::size_t> Arrival::on_device() noexcept {
    CopiesUnderWay copies;
    std::size_t bytes = 0;
    {
        const Locked lock(Reads::all().mutex);
        std::swap(copies, copies_);
        bytes = on_device_;
    }
    if (!copies.wait()) return std::nullopt;
    return bytes;
}

// Where the bytes are to lie; nothing: not there, at least not now.
std::optional<packing::Launch> Arrival::unpacking_to(std::uintptr_t from, OwnWork& work, DeviceRange& writes) noexcept {
    if (!layout_) return std::nullopt;
    const auto span = packing::span_of(*layout_, unpacked_at_, context_);
    if (!span) return std::nullopt;
    auto launch = packing::prepare(packing::Direction::Unpack, *layout_, unpacked_at_, bytes_ | from, work,
                                   static_cast<CUcontext>(context_));
    if (launch) writes = *span;
    return launch;
}

// Begins what enqueue() enqueues; where its end cannot be counted, waits for it.
template <class Enqueue>
bool Reads::begin(Arrival& to, const reading_devices::Place& place, OwnWork& work, DeviceRange writes,
                  Enqueue&& enqueue) noexcept {
    InFlight::Mark mark{};
    bool under_way = false;
    const auto result = work.begin(
        writes,
        [&] {
            const auto made = enqueue();
            under_way = made == CUDA_SUCCESS && to.copies_.add(place, work.stream());
            return made == CUDA_SUCCESS && !under_way ? driver.cuStreamSynchronize(work.stream()) : made;
        },
        mark);
    if (under_way) {
        to.copies_.counts_as(mark);
    } else {
        in_flight.finished(mark);
    }
    return result == CUDA_SUCCESS;
}

// Nothing here waits for work of the program: that may be waiting for another process, which waits for this read.
bool Reads::to_object(pid_t process, Arrival& to, std::uintptr_t host, const imports::Found& from) noexcept {
    const auto offset = host - to.host_;
    if (offset != to.on_device_ || (!to.idle_ && !OwnWork::begins_at_once(to.context_))) return false;
    const auto device = to.device_ + offset;
    const Object* const object = coherence().object_of(device);
    if (object == nullptr) return false;
    const auto* const place = imports::place(process, static_cast<CUcontext>(to.context_));
    trace::Transfer traced(trace::Kind::Staging, "message from a device", from.bytes,
                           object->report_id_at(device - object->base));
    OwnWork work(to.context_, bulk::Order::AtOnce);
    if (!work) return false;
    DeviceRange writes{device, from.bytes};
    std::optional<packing::Launch> unpacking;
    if (place != nullptr && offset == 0 && from.bytes == to.bytes_ && from.context == to.context_) {
        unpacking = to.unpacking_to(from.device, work, writes);
    }
    const auto enqueue = [&] {
        return unpacking ? (*unpacking)(from.device, 0, from.bytes)
                         : driver.cuMemcpyDtoDAsync_v2(device, from.device, from.bytes, work.stream());
    };
    const bool done =
        place != nullptr ? begin(to, *place, work, writes, enqueue) : work.run({}, writes, enqueue) == CUDA_SUCCESS;
    if (!done) return false;
    traced.done();
    to.unpacking_ = std::move(unpacking);
    to.on_device_ += from.bytes;
    return true;
}

bool Reads::to_host(std::uintptr_t host, const imports::Found& from) noexcept {
    trace::Transfer traced(trace::Kind::Staging, "message from a device", from.bytes);
    auto* const to = reinterpret_cast<std::byte*>(host);
    auto result = CUDA_ERROR_NOT_READY;
    if (OwnWork work(from.context, bulk::Order::AtOnce); work) {
        result = work.run({}, {}, [&] { return work.to_host(to, from.device, from.bytes); });
    } else if (!from.on_host) {
        // In a host function, for which the device may wait.
        helper::with_driver(true, helper::Kind::Transfer, [&] {
            const ContextScope scope(from.context);
            const CaptureRelaxed relaxed;
            result =
                scope.result() == CUDA_SUCCESS ? driver.cuMemcpyDtoH_v2(to, from.device, from.bytes) : scope.result();
        });
    }
    if (result != CUDA_SUCCESS) return false;
    traced.done();
    return true;
}

// The device of this process takes each piece as soon as the other device has brought it.
std::optional<int> Reads::image_to_object(pid_t process, Arrival& to, std::uintptr_t host,
                                          const imports::Found& from) noexcept {
    const auto offset = host - to.host_;
    if (offset != to.on_device_ || (!to.idle_ && !OwnWork::begins_at_once(to.context_))) return std::nullopt;
    const auto device = to.device_ + offset;
    const auto* const image = other_images::pinned(process, from, static_cast<CUcontext>(to.context_));
    if (image == nullptr || coherence().object_of(device) == nullptr) return std::nullopt;
    OwnTransfer transfer(OwnTransfer::To::Device, "message from shared memory", device, from.bytes);
    OwnWork work(to.context_, bulk::Order::AtOnce);
    if (!work) return std::nullopt;
    int error = 0;
    const auto copy = [&] {
        auto result = CUDA_SUCCESS;
        for (std::size_t done = 0; done < from.bytes && result == CUDA_SUCCESS && error == 0;) {
            const auto there = other_images::arrived_after(process, from, done);
            if (there < 0) {
                error = static_cast<int>(-there);
                break;
            }
            const auto piece = static_cast<std::size_t>(there) - done;
            result = driver.cuMemcpyHtoDAsync_v2(device + done, image + done, piece, work.stream());
            done += piece;
        }
        return result;
    };
    const auto result = work.run({}, {device, from.bytes}, copy);
    if (error == 0 && !other_images::same(from)) error = EAGAIN;
    if (error != 0) return error;
    if (result != CUDA_SUCCESS) return std::nullopt;
    transfer.done();
    to.on_device_ += from.bytes;
    return 0;
}

int Reads::image_to_host(pid_t process, std::uintptr_t host, const imports::Found& from) noexcept {
    trace::Transfer traced(trace::Kind::Staging, "message through shared memory", from.bytes);
    for (std::size_t done = 0; done < from.bytes;) {
        const auto there = other_images::arrived_after(process, from, done);
        if (there < 0) return static_cast<int>(-there);
        const auto piece = static_cast<std::size_t>(there) - done;
        int error = 0;
        if (read_stretch(process, reinterpret_cast<void*>(host + done),
                         reinterpret_cast<const void*>(from.image + done), piece, error) != piece) {
            return error != 0 ? error : EFAULT;
        }
        done += piece;
    }
    if (!other_images::same(from)) return EAGAIN;
    traced.done();
    return 0;
}

int Reads::from_image(pid_t process, Arrival* to, std::uintptr_t host, const imports::Found& from) const noexcept {
    if (to != nullptr) {
        if (const auto error = image_to_object(process, *to, host, from)) return *error;
    }
    return image_to_host(process, host, from);
}

std::size_t Reads::copy(pid_t process, std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                        int& error) const noexcept {
    // A message from the same addresses may end at any moment, and another one's entry is as good.
    constexpr unsigned kAttempts = 1000;
    unsigned attempts = 0;
    std::size_t done = 0;
    error = 0;
    while (done < bytes) {
        Arrival* const arrival = this->arrival(to + done, bytes - done);
        auto* const context = arrival != nullptr ? static_cast<CUcontext>(arrival->context_) : nullptr;
        const auto found = imports::find(process, from + done, bytes - done, context, !expected.empty());
        auto now = found.entry != nullptr ? found.bytes : bytes - done;
        if (found.device != 0 &&
            ((arrival != nullptr && to_object(process, *arrival, to + done, found)) || to_host(to + done, found))) {
            found.entry->fetched.fetch_add(now, std::memory_order_release);
        } else if (found.image != 0) {
            error = from_image(process, arrival, to + done, found);
            if (error == EAGAIN && ++attempts < kAttempts) continue;
            if (error != 0) break;
            found.entry->taken.fetch_add(now, std::memory_order_release);
        } else {
            const auto got = read_stretch(process, reinterpret_cast<void*>(to + done),
                                          reinterpret_cast<const void*>(from + done), now, error);
            done += got;
            if (got != now) break;
            now = 0;
        }
        done += now;
    }
    if (error == EAGAIN) error = EFAULT;
    return done;
}

// A child of fork() has neither a device nor the threads that may have held the lock.
bool may_read_device() noexcept {
    return (arrivals.load(std::memory_order_acquire) != 0 || imports::any()) &&
           process::active.load(std::memory_order_relaxed);
}

std::optional<ssize_t> remote_read(pid_t process, std::span<const iovec> own, std::span<const iovec> other) noexcept {
    auto& all = Reads::all();
    const Locked lock(all.mutex);
    const bool any = std::any_of(other.begin(), other.end(), [&](const iovec& part) {
        all.mutex.assume_held();
        const auto found = imports::find(process, address(part.iov_base), part.iov_len, nullptr, !all.expected.empty());
        return part.iov_len != 0 && found.entry != nullptr;
    });
    if (!any) return std::nullopt;
    const int before = errno;
    std::size_t done = 0, mine = 0, theirs = 0, in_mine = 0, in_theirs = 0;
    int error = 0;
    while (mine < own.size() && theirs < other.size() && done < kMostBytes) {
        const auto bytes =
            std::min({own[mine].iov_len - in_mine, other[theirs].iov_len - in_theirs, kMostBytes - done});
        const auto got = all.copy(process, address(own[mine].iov_base) + in_mine,
                                  address(other[theirs].iov_base) + in_theirs, bytes, error);
        done += got;
        if (got != bytes) break;
        in_mine += bytes;
        in_theirs += bytes;
        if (in_mine == own[mine].iov_len) ++mine, in_mine = 0;
        if (in_theirs == other[theirs].iov_len) ++theirs, in_theirs = 0;
    }
    errno = before;
    if (done != 0 || error == 0) return static_cast<ssize_t>(done);
    errno = error;
    return -1;
}

std::uintptr_t opened(pid_t process, const SharedMemory& memory, void* context) noexcept {
    const Locked lock(Reads::all().mutex);
    return imports::open(process, memory, static_cast<CUcontext>(context));
}

void imports_forget(CUcontext context) noexcept {
    auto& all = Reads::all();
    const Locked lock(all.mutex);
    all.forget(context);
    imports::forget(context);
    reading_devices::forget(context);
    other_images::forget(context);
}

}  // namespace hpe::ipc
