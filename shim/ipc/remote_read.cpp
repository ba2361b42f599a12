// SPDX-License-Identifier: MIT
// Stretches of a read, and where each comes from and goes to.
#include "shim/ipc/remote_read.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include "shim/base/active.h"
#include "shim/base/helper.h"
#include "shim/base/kernel.h"
#include "shim/base/mutex.h"
#include "shim/coherence/coherence.h"
#include "shim/copies/own_work.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/imports.h"
#include "shim/observe/trace.h"

namespace hpe::ipc {

namespace {

constinit std::atomic<unsigned> arrivals{0};

std::uintptr_t address(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

// Never destroyed: messages may come after the process's own exit handlers.
struct Reads {
    Mutex mutex;  // also of the imports
    std::vector<Arrival*> expected HPE_GUARDED_BY(mutex);

    static Reads& all() noexcept {
        static Reads& reads = *new Reads;
        return reads;
    }
    Arrival* arrival(std::uintptr_t host, std::size_t bytes) const noexcept HPE_REQUIRES(mutex) {
        for (Arrival* one : expected) {
            if (host >= one->host_ && host < one->host_ + one->bytes_ && bytes <= one->host_ + one->bytes_ - host) {
                return one;
            }
        }
        return nullptr;
    }
    static bool to_object(Arrival& to, std::uintptr_t host, const imports::Found& from) noexcept;
    static bool to_host(std::uintptr_t host, const imports::Found& from) noexcept;
    bool copy(pid_t process, std::uintptr_t to, std::uintptr_t from, std::size_t bytes) const noexcept
        HPE_REQUIRES(mutex);
};

Arrival::Arrival(const Object& object, std::uintptr_t device, const std::byte* host, std::size_t bytes) noexcept
    : device_(device), context_(object.context), host_(address(host)), bytes_(bytes) {
    again();
    auto& all = Reads::all();
    const Locked lock(all.mutex);
    all.expected.push_back(this);
    arrivals.fetch_add(1, std::memory_order_release);
}

Arrival::~Arrival() {
    auto& all = Reads::all();
    const Locked lock(all.mutex);
    std::erase(all.expected, this);
    arrivals.fetch_sub(1, std::memory_order_release);
}

void Arrival::again() noexcept {
    const bool idle = in_flight.idle();
    const Locked lock(Reads::all().mutex);
    on_device_ = 0;
    idle_ = idle;
}

std::size_t Arrival::on_device() const noexcept {
    const Locked lock(Reads::all().mutex);
    return on_device_;
}

// Nothing here waits for work of the program: that may be waiting for another process, which waits for this read.
bool Reads::to_object(Arrival& to, std::uintptr_t host, const imports::Found& from) noexcept {
    const auto offset = host - to.host_;
    if (offset != to.on_device_ || (!to.idle_ && !in_flight.idle())) return false;
    const auto device = to.device_ + offset;
    const Object* const object = coherence().object_of(device);
    if (object == nullptr) return false;
    trace::Transfer traced(trace::Kind::Staging, "message from a device", from.bytes, object->report_id);
    OwnWork work(to.context_, bulk::Order::AtOnce);
    const auto copy = [&] { return driver.cuMemcpyDtoDAsync_v2(device, from.device, from.bytes, work.stream()); };
    if (!work || work.run({}, {device, from.bytes}, copy) != CUDA_SUCCESS) return false;
    traced.done();
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

bool Reads::copy(pid_t process, std::uintptr_t to, std::uintptr_t from, std::size_t bytes) const noexcept {
    while (bytes != 0) {
        Arrival* const arrival = this->arrival(to, bytes);
        auto* const context = arrival != nullptr ? static_cast<CUcontext>(arrival->context_) : nullptr;
        const auto found = imports::find(process, from, bytes, context, !expected.empty());
        auto done = found.entry != nullptr ? found.bytes : bytes;
        const bool by_device =
            found.device != 0 && ((arrival != nullptr && to_object(*arrival, to, found)) || to_host(to, found));
        if (by_device) {
            found.entry->fetched.fetch_add(done, std::memory_order_release);
        } else {
            const iovec mine{reinterpret_cast<void*>(to), done}, other{reinterpret_cast<void*>(from), done};
            const long got =
                kernel::raw(SYS_process_vm_readv, process, kernel::word(&mine), 1, kernel::word(&other), 1, 0);
            if (got <= 0) return false;
            done = static_cast<std::size_t>(got);
        }
        to += done;
        from += done;
        bytes -= done;
    }
    return true;
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
    ssize_t done = 0;
    std::size_t mine = 0, theirs = 0, in_mine = 0, in_theirs = 0;
    while (mine < own.size() && theirs < other.size()) {
        const auto bytes = std::min(own[mine].iov_len - in_mine, other[theirs].iov_len - in_theirs);
        if (!all.copy(process, address(own[mine].iov_base) + in_mine, address(other[theirs].iov_base) + in_theirs,
                      bytes)) {
            if (done != 0) break;
            errno = EFAULT;
            return -1;
        }
        done += static_cast<ssize_t>(bytes);
        in_mine += bytes;
        in_theirs += bytes;
        if (in_mine == own[mine].iov_len) ++mine, in_mine = 0;
        if (in_theirs == other[theirs].iov_len) ++theirs, in_theirs = 0;
    }
    errno = before;
    return done;
}

std::uintptr_t opened(pid_t process, const SharedMemory& memory, void* context) noexcept {
    const Locked lock(Reads::all().mutex);
    return imports::open(process, memory, static_cast<CUcontext>(context));
}

void imports_forget(CUcontext context) noexcept {
    const Locked lock(Reads::all().mutex);
    imports::forget(context);
}

}  // namespace hpe::ipc
