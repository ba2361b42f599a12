// SPDX-License-Identifier: MIT
// Memory that stands for a range of the program's in a call that raises no fault: a system call, or MPI and a network
// card, which read and write it later. The kernel fails on a page without access (EFAULT), and a block cannot be held
// accessible while other threads launch kernels: so such a call is never given the mapping at the device address.
//
// A call that reads memory is given the view, once the blocks are valid on the host: what is there stays, whatever
// happens to the blocks meanwhile, unless the device changes those very bytes. A call that writes memory is given
// bounce memory, and what it wrote is stored as the CPU would have stored it: whole blocks without asking the device
// for their old bytes.
//
// Source: ADSM/GMAC paper section 4.4 (interposed I/O calls); thesis section 5.3.5.
//
// Bytes. A lease belongs to the thread that made it; the memory is the lease's own or the object's. Threads: any, also
// in host functions and signal handlers as far as a CPU access may be made there. Errors: a lease without memory leaves
// the reason in errno.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shim/base/active.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/coherence/uncached.h"
#include "shim/observe/unread.h"
#include "shim/transfer/copiers.h"

namespace hpe::lease {

// Whether there is any memory for which another must stand: a few loads.
inline bool any() noexcept {
    return process::active.load(std::memory_order_relaxed) && (!coherence().table().empty() || device_owned::any());
}
// Whether an object, or uncached memory, lies in the range. Else the call is none of libhpe's business: two loads in a
// process without any.
bool any_object(std::uintptr_t begin, std::size_t bytes) noexcept;
inline bool may_overlap(const void* at, std::size_t bytes) noexcept {
    return process::active.load(std::memory_order_relaxed) &&
           coherence().may_overlap(reinterpret_cast<std::uintptr_t>(at), bytes);
}
// Whether one may, or what unread.h has closed, for doors that shall need no registers of their own to find out.
inline bool may_concern(const void* at, std::size_t bytes) noexcept { return unread::any() || may_overlap(at, bytes); }
// Each door asks before the kernel accesses the range: what unread.h has closed of it is opened here.
inline bool concerns(const void* at, std::size_t bytes) noexcept {
    unread::open(at, bytes);
    return may_overlap(at, bytes) && any_object(reinterpret_cast<std::uintptr_t>(at), bytes);
}
// Whether a call cannot be given a part of for_parts() as it is.
bool stands_for(const void* at, std::size_t bytes) noexcept;
// Whether all of it lies in one object; whether all of it is uncached memory.
bool in_one_object(const void* at, std::size_t bytes) noexcept;
bool all_uncached(const void* at, std::size_t bytes) noexcept;

// Calls part(object or nullptr, begin, bytes) for each stretch of the range that lies in one object, in uncached memory
// or in neither, in order; until one returns less than it was given. Returns the sum.
template <class Part>
std::size_t for_parts(std::uintptr_t begin, std::size_t bytes, Part&& part) noexcept {
    std::size_t done = 0;
    const auto stretch = [&](Object* object, std::uintptr_t end) {
        while (begin + done < end) {
            auto wanted = end - (begin + done);
            if (object == nullptr) wanted = uncached::stretch(begin + done, wanted).bytes;
            const auto got = part(object, begin + done, wanted);
            done += got;
            if (got != wanted) return false;
        }
        return true;
    };
    bool whole = true;
    coherence().table().overlapping(begin, bytes, [&](Object& object) {
        const auto first = std::max(object.base, begin + done);
        const auto end = std::min(object.base + object.size, begin + bytes);
        whole = whole && first < end && stretch(nullptr, first);
        // Pages between a region's allocations are nobody's, as without libhpe.
        for (auto at = first; whole && at < end;) {
            auto there = object.accessible_from(at, end - at);
            const bool nobodys = there == 0;
            while (nobodys && at + there < end && !object.holds(at + there)) there += kPage - (at + there) % kPage;
            at = std::min(at + there, end);
            whole = stretch(nobodys ? nullptr : &object, at);
        }
    });
    if (whole) stretch(nullptr, begin + bytes);
    return done;
}

// Memory that any call may use, begun at the same place in a page as `like` (O_DIRECT looks at that). Small ones are
// recycled.
class Bounce {
public:
    static constexpr std::size_t kRecycled = std::size_t{1} << 20;

    Bounce() noexcept = default;
    Bounce(const void* like, std::size_t bytes) noexcept { take(like, bytes); }
    ~Bounce();
    Bounce(const Bounce&) = delete;
    Bounce& operator=(const Bounce&) = delete;
    // Once, where the constructor has not. False: there is no memory.
    bool take(const void* like, std::size_t bytes) noexcept;
    std::byte* memory() const noexcept { return memory_; }

private:
    std::byte* mapping_ = nullptr;
    std::size_t mapped_ = 0;
    std::byte* memory_ = nullptr;
};

// The bytes at `at` for a call that reads them. `caller`: the instruction that the report names.
// Where the range lies in one object it is the view, else a copy; the copy ends where memory cannot be read.
// Until::Later: the call reads a view after the lease has ended, too.
enum class Until : bool { Here, Later };
class ToRead {
public:
    ToRead(const void* at, std::size_t bytes, const void* caller, Until until = Until::Here) noexcept;
    const void* memory() const noexcept { return memory_; }
    std::size_t bytes() const noexcept { return bytes_; }
    // Not so of a range that lay in an object until another thread exported it.
    bool is_view() const noexcept { return view_of_.has_value(); }

private:
    std::optional<ObjectUse> view_of_;
    Bounce bounce_;
    const void* memory_ = nullptr;
    std::size_t bytes_;
};

// Stores what a call has put into bounce memory, as the CPU would. Returns how many bytes could be stored: fewer only
// where ordinary memory beside an object cannot be written.
std::size_t store(void* to, const std::byte* from, std::size_t bytes, const void* caller) noexcept;

// Of a copy of uncached memory, as load() made it: stores the bytes that are other now than before. False: the device
// does not take them.
bool store_changes(void* to, std::byte* now, const std::byte* before, std::size_t bytes) noexcept;

// Reads what is at hand of a regular file straight into an object, with helper threads: whole blocks that begin at
// `to`. Returns bytes, 0 where that cannot be done: the caller reads into bounce memory.
std::size_t store_file(void* to, std::size_t bytes, const copiers::File& from) noexcept;

// For a call that may fail half-way with EFAULT, that copies to memory itself (it hands it to no device) and can be
// begun again: makes a range of one object accessible where it is, as CPU writes would, until a launch of another
// thread takes a part of it. False: it cannot be.
bool open_to_write(void* at, std::size_t bytes, const void* caller) noexcept;

// The other way: copies to memory that is no object's.
std::size_t load(std::byte* to, const void* from, std::size_t bytes, const void* caller) noexcept;

// A system call by its number failed with EFAULT: one line, once in the process, names the object among its arguments.
void explain_refusal(long number, std::span<const long> arguments) noexcept;
// A door refuses memory that the kernel would use without libhpe's seeing when: one line, once in the process.
void explain_unseen(const char* what, const void* at, std::size_t bytes) noexcept;

}  // namespace hpe::lease
