// SPDX-License-Identifier: MIT
// Ranges of the program's memory, part by part: each lies in one object, or in none.
#include "shim/coherence/lease.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "shim/base/address.h"
#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/log.h"
#include "shim/transfer/copiers.h"
#include "shim/transfer/staging.h"

namespace hpe::lease {

namespace {

// Helper threads pay from about here on.
constexpr std::size_t kManyBytes = std::size_t{64} << 20;

// Recycled bounce memory, taken and given back without a lock: a signal handler may read a file, too.
constinit std::array<std::atomic<std::byte*>, 16> idle{};

std::byte* map(std::size_t bytes) noexcept {
    void* const memory =
        kernel::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Between ordinary memory and bounce memory. The kernel copies, and stops where there is nothing.
std::size_t copy_ordinary(long call, std::uintptr_t ordinary, std::byte* bounce, std::size_t bytes) noexcept {
    iovec mine{bounce, bytes}, other{reinterpret_cast<void*>(ordinary), bytes};
    const auto copied = kernel::raw(call, kernel::raw(SYS_getpid), kernel::word(&mine), 1, kernel::word(&other), 1, 0);
    return copied < 0 ? 0 : static_cast<std::size_t>(copied);
}

// The object that all of it lies in, or nullptr.
Object* object_with(const void* at, std::size_t bytes) noexcept {
    Object* const object = coherence().object_of(address(at));
    return object != nullptr && bytes == object->accessible_from(address(at), bytes) ? object : nullptr;
}

// What lies there as the program knows it: of a region, an allocation.
DeviceRange named(const Object& object, std::uintptr_t at) noexcept {
    const auto allocation = object.allocation_of(std::max(at, object.base));
    return allocation ? DeviceRange{allocation.base, allocation.bytes} : DeviceRange{object.base, object.size};
}

class FromFile final : public Coherence::Source {
public:
    explicit FromFile(const copiers::File& file) noexcept : file_(file) {}
    bool fill(std::byte* to, std::size_t bytes) noexcept override { return copiers::read_together(to, file_, bytes); }

private:
    const copiers::File& file_;
};

}  // namespace

bool any_object(std::uintptr_t begin, std::size_t bytes) noexcept {
    bool any = false;
    coherence().table().overlapping(begin, bytes, [&](Object&) { any = true; });
    if (any) return true;
    const auto first = uncached::stretch(begin, bytes);
    return first.uncached || first.bytes != bytes;
}

bool stands_for(const void* at, std::size_t bytes) noexcept {
    return in_one_object(at, bytes) || uncached::stretch(address(at), bytes).uncached;
}

bool in_one_object(const void* at, std::size_t bytes) noexcept { return object_with(at, bytes) != nullptr; }

bool all_uncached(const void* at, std::size_t bytes) noexcept {
    const auto first = uncached::stretch(address(at), bytes);
    return first.uncached && first.bytes == bytes;
}

bool Bounce::take(const void* like, std::size_t bytes) noexcept {
    const auto in_page = address(like) % kPage;
    const auto wanted = (in_page + bytes + kPage - 1) / kPage * kPage;
    mapped_ = std::max(wanted, kRecycled + kPage);
    if (mapped_ == kRecycled + kPage) {
        for (auto& place : idle) {
            if (mapping_ == nullptr && place.load(std::memory_order_relaxed) != nullptr) {
                mapping_ = place.exchange(nullptr, std::memory_order_acquire);
            }
        }
    }
    if (mapping_ == nullptr) mapping_ = map(mapped_);
    if (mapping_ != nullptr) memory_ = mapping_ + in_page;
    return mapping_ != nullptr;
}

Bounce::~Bounce() {
    if (mapping_ == nullptr) return;
    if (mapped_ == kRecycled + kPage) {
        for (auto& place : idle) {
            std::byte* expected = nullptr;
            if (place.compare_exchange_strong(expected, mapping_, std::memory_order_release)) return;
        }
    }
    const ErrnoKept kept;
    kernel::munmap(mapping_, mapped_);
}

ToRead::ToRead(const void* at, std::size_t bytes, const void* caller, Until until) noexcept : bytes_(bytes) {
    if (Object* const object = object_with(at, bytes)) {
        view_of_.emplace(*object, address(at));
        if (until == Until::Later) object->view_is_read.store(true, std::memory_order_release);
        memory_ = coherence().ready_to_read(*object, address(at), bytes, caller);
        if (memory_ != nullptr) return;
        view_of_.reset();
    }
    if (!bounce_.take(at, bytes)) return;
    bytes_ = load(bounce_.memory(), at, bytes, caller);
    if (bytes_ != 0) {
        memory_ = bounce_.memory();
    } else {
        errno = EFAULT;
    }
}

std::size_t load(std::byte* to, const void* from, std::size_t bytes, const void* caller) noexcept {
    const ErrnoKept kept;
    return for_parts(address(from), bytes, [&](Object* object, std::uintptr_t begin, std::size_t part) -> std::size_t {
        auto* const target = to + (begin - address(from));
        if (object == nullptr && uncached::stretch(begin, part).uncached) {
            return uncached::read(target, begin, part) ? part : 0;
        }
        if (object == nullptr) return copy_ordinary(SYS_process_vm_readv, begin, target, part);
        const auto* const ready = coherence().ready_to_read(*object, begin, part, caller);
        // Another thread may have exported it meanwhile.
        if (ready == nullptr) return uncached::read(target, begin, part) ? part : 0;
        std::memcpy(target, ready, part);
        return part;
    });
}

std::size_t store(void* to, const std::byte* from, std::size_t bytes, const void* caller) noexcept {
    const ErrnoKept kept;
    return for_parts(address(to), bytes, [&](Object* object, std::uintptr_t begin, std::size_t part) -> std::size_t {
        auto* const source = from + (begin - address(to));
        if (object != nullptr && coherence().store(*object, begin, source, part, caller)) return part;
        if (object != nullptr || uncached::stretch(begin, part).uncached) {
            return uncached::write(begin, source, part) ? part : 0;
        }
        return copy_ordinary(SYS_process_vm_writev, begin, const_cast<std::byte*>(source), part);
    });
}

bool store_changes(void* to, std::byte* now, const std::byte* before, std::size_t bytes) noexcept {
    const ErrnoKept kept;
    return uncached::write_changes(address(to), now, before, bytes);
}

bool open_to_write(void* at, std::size_t bytes, const void* caller) noexcept {
    Object* const object = object_with(at, bytes);
    return object != nullptr && coherence().ready_to_write(*object, address(at), bytes, caller);
}

std::size_t store_file(void* to, std::size_t bytes, const copiers::File& from) noexcept {
    Object* const object = coherence().object_of(address(to));
    if (object == nullptr) return 0;
    if (bytes >= kManyBytes) staging::start_helpers();
    FromFile source(from);
    return coherence().overwrite(*object, address(to), object->accessible_from(address(to), bytes), source);
}

void explain_refusal(long number, std::span<const long> arguments) noexcept {
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    for (const long argument : arguments) {
        const auto at = static_cast<std::uintptr_t>(argument);
        const Object* const object = coherence().object_of(at);
        if (object == nullptr || said.test_and_set()) continue;
        const auto refused = named(*object, at);
        log::warn(
            "system call {}, made without its function in libc, was refused memory in object {:#x} of {} bytes: libhpe "
            "sees only libc's functions; others may follow unsaid",
            number, refused.begin, refused.bytes);
    }
}

void explain_unseen(const char* what, const void* at, std::size_t bytes) noexcept {
    static std::atomic_flag said = ATOMIC_FLAG_INIT;
    coherence().table().overlapping(address(at), bytes, [&](const Object& object) {
        if (said.test_and_set()) return;
        const auto refused = named(object, address(at));
        log::warn(
            "{} was refused memory in object {:#x} of {} bytes: the kernel would use it past libhpe; use a buffer and "
            "copy; others may follow unsaid",
            what, refused.begin, refused.bytes);
    });
}

}  // namespace hpe::lease
