// SPDX-License-Identifier: MIT
// Parts of a read, and what becomes of a part that ends short.
#include "shim/ipc/split_read.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "shim/base/active.h"
#include "shim/base/helper.h"
#include "shim/base/kernel.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/observe/trace.h"
#include "shim/transfer/copiers.h"
#include "shim/transfer/staging.h"

namespace hpe::ipc {

namespace {

// With one helper 1 MiB takes 0.88 of the time and 512 KiB 0.95, where both processors are spare; a smaller read takes
// longer than by one thread. UCX reads in segments of 512 KiB.
constexpr std::size_t kSmallestSplit = std::size_t{512} << 10;
constexpr unsigned kFewHelpers = 2;
// A part costs a system call, and the kernel takes the other process's lock on its address space for each.
constexpr std::size_t kSmallestPart = std::size_t{128} << 10, kLargestPart = std::size_t{1} << 20;
constexpr unsigned kPartsEach = 4;
// The helpers' start costs half a millisecond, which is what reading so much by one thread loses.
constexpr std::size_t kStart = std::size_t{4} << 20;
// The end of the address space that programs have without asking for more: the kernel refuses a list at once that
// reaches beyond the end.
constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 47;

constinit std::atomic<std::size_t> read_alone{0};

std::uintptr_t place_of(const void* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

// A place in a list.
class Cursor {
public:
    Cursor(std::span<const iovec> list, std::size_t at) noexcept : list_(list) { advance(at); }
    void advance(std::size_t bytes) noexcept {
        inside_ += bytes;
        while (part_ < list_.size() && inside_ >= list_[part_].iov_len) inside_ -= list_[part_++].iov_len;
    }
    // What comes next, at most `most` bytes in as many parts as there is room for.
    std::span<const iovec> next(std::span<iovec> room, std::size_t most) const noexcept {
        std::size_t count = 0;
        for (auto part = part_, inside = inside_; part < list_.size() && count < room.size() && most != 0; ++part) {
            const auto bytes = std::min(list_[part].iov_len - inside, most);
            room[count++] = {static_cast<char*>(list_[part].iov_base) + inside, bytes};
            most -= bytes;
            inside = 0;
        }
        return room.first(count);
    }

private:
    std::span<const iovec> list_;
    std::size_t part_ = 0, inside_ = 0;
};

struct Read {
    pid_t process;
    std::span<const iovec> own, other;
    std::atomic<std::size_t> complete;  // all bytes before it came, as far as parts have ended
};

// A stretch of the read by this thread. Returns how many bytes came; with fewer, `error` is why, 0 where the kernel
// gave no reason.
std::size_t read_alone_from(const Read& read, std::size_t begin, std::size_t bytes, int& error) noexcept {
    Cursor own(read.own, begin), other(read.other, begin);
    std::array<iovec, 8> mine, theirs;
    error = 0;
    std::size_t done = 0;
    while (done < bytes) {
        const auto to = own.next(mine, bytes - done), from = other.next(theirs, bytes - done);
        const long got = kernel::raw(SYS_process_vm_readv, read.process, kernel::word(to.data()),
                                     kernel::word(to.size()), kernel::word(from.data()), kernel::word(from.size()), 0);
        if (got <= 0) {
            error = static_cast<int>(-got);
            break;
        }
        done += static_cast<std::size_t>(got);
        own.advance(static_cast<std::size_t>(got));
        other.advance(static_cast<std::size_t>(got));
    }
    return done;
}

void read_part(void* context, std::size_t begin, std::size_t bytes) noexcept {
    auto& read = *static_cast<Read*>(context);
    // What lies behind a gap is of no use.
    auto complete = read.complete.load(std::memory_order_relaxed);
    if (begin >= complete) return;
    int error = 0;
    const auto end = begin + read_alone_from(read, begin, bytes, error);
    if (end == begin + bytes) return;
    while (end < complete && !read.complete.compare_exchange_weak(complete, end, std::memory_order_relaxed)) {
    }
}

std::size_t read_together(Read& read, std::size_t bytes, int& error) noexcept {
    // Helpers use what lies on this stack, so no handler may jump out.
    const SignalsBlocked blocked;
    trace::Transfer traced(trace::Kind::Staging, "read of a process by several threads", bytes);
    const auto threads = std::min(copiers::running(), copiers::kFew) + 1;
    const auto part = std::clamp(bytes / (kPartsEach * threads) / 4096 * 4096, kSmallestPart, kLargestPart);
    read.complete.store(bytes, std::memory_order_relaxed);
    copiers::Job job;
    job.begin_calls(bytes, part, read_part, &read, copiers::Crew::Few);
    job.finish();
    auto done = read.complete.load(std::memory_order_relaxed);
    error = 0;
    // What failed on a helper is the calling thread's to try: it may have rights that helpers lack, and has the error.
    if (done < bytes) done += read_alone_from(read, done, bytes - done, error);
    if (done == bytes) traced.done();
    return done;
}

// Whether the helpers are there for a read of so many bytes. If not, it counts towards their start.
bool helpers_for(std::size_t bytes) noexcept {
    if (bytes < kSmallestSplit) return false;
    if (const auto helpers = copiers::running(); helpers != 0)
        return helpers > kFewHelpers || bytes >= 2 * kSmallestSplit;
    if (read_alone.fetch_add(bytes, std::memory_order_relaxed) + bytes >= kStart) {
        // This may be a signal handler, which cannot make threads.
        helper::later([] { staging::start_helpers(); });
    }
    return false;
}

// Bytes of a list; 0: for a reason of the caller's own it is the kernel's to judge.
std::size_t length(std::span<const iovec> list) noexcept {
    std::size_t sum = 0;
    for (const auto& part : list) {
        if (place_of(part.iov_base) > kEnd || part.iov_len > kEnd - place_of(part.iov_base)) return 0;
        sum = std::min(sum + part.iov_len, kMostBytes);
    }
    return sum;
}

// Of memory that is named twice, the last part is what counts.
bool overlap(std::span<const iovec> list) noexcept {
    for (std::size_t i = 1; i < list.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            const auto a = place_of(list[i].iov_base), b = place_of(list[k].iov_base);
            if (a < b + list[k].iov_len && b < a + list[i].iov_len) return true;
        }
    }
    return false;
}

}  // namespace

bool may_split_reads() noexcept {
    return process::active.load(std::memory_order_relaxed) && staging::helpers() != 0 && !coherence().table().empty();
}

std::optional<ssize_t> split_read(pid_t process, std::span<const iovec> own, std::span<const iovec> other) noexcept {
    const auto bytes = std::min({length(own), length(other), kMostBytes});
    if (bytes < kSmallestSplit || overlap(own) || kernel::raw(SYS_getpid) == process || !helpers_for(bytes)) {
        return std::nullopt;
    }
    Read read{process, own, other, {}};
    int error = 0;
    const auto done = read_together(read, bytes, error);
    if (done != 0 || error == 0) return static_cast<ssize_t>(done);
    errno = error;
    return -1;
}

std::size_t read_stretch(pid_t process, void* to, const void* from, std::size_t bytes, int& error) noexcept {
    const iovec mine{to, bytes}, theirs{const_cast<void*>(from), bytes};
    Read read{process, {&mine, 1}, {&theirs, 1}, {}};
    return may_split_reads() && helpers_for(bytes) ? read_together(read, bytes, error)
                                                   : read_alone_from(read, 0, bytes, error);
}

}  // namespace hpe::ipc
