// SPDX-License-Identifier: MIT
// Doors of stdio: glibc reads and writes what is larger than a stream's buffer straight from and to the caller's
// memory, by system calls that no door sees.
//
// Handled: fread, fwrite, their unlocked and fortified forms; fputs, fputs_unlocked and puts; setvbuf, setbuf and
// setbuffer, where a buffer that lies in an object is declined for one of the stream's own. Forwarded as they are:
// everything that goes through the stream's buffer, by accesses that trap (fgets, getline, fscanf, fprintf, getc ...).
//
// EOF, error flags and counts of items are glibc's: its own function is called for each piece, under the stream's lock.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"

using namespace hpe;
using namespace hpe::doors;

namespace {

using Read = std::size_t(void*, std::size_t, std::size_t, FILE*);
using Write = std::size_t(const void*, std::size_t, std::size_t, FILE*);
using ReadChecked = std::size_t(void*, std::size_t, std::size_t, std::size_t, FILE*);
constinit Next<Read> next_fread{"fread"}, next_fread_unlocked{"fread_unlocked"};
constinit Next<Write> next_fwrite{"fwrite"}, next_fwrite_unlocked{"fwrite_unlocked"};
constinit Next<ReadChecked> next_fread_chk{"__fread_chk"}, next_fread_unlocked_chk{"__fread_unlocked_chk"};
constinit Next<int(const char*, FILE*)> next_fputs{"fputs"}, next_fputs_unlocked{"fputs_unlocked"};
constinit Next<int(const char*)> next_puts{"puts"};
constinit Next<int(FILE*, char*, int, std::size_t)> next_setvbuf{"setvbuf"};

class StreamLock {
public:
    StreamLock(FILE* stream, bool wanted) noexcept : stream_(wanted ? stream : nullptr) {
        if (stream_ != nullptr) flockfile(stream_);
    }
    ~StreamLock() {
        if (stream_ != nullptr) funlockfile(stream_);
    }
    StreamLock(const StreamLock&) = delete;
    StreamLock& operator=(const StreamLock&) = delete;

private:
    FILE* const stream_;
};

bool concerns(const void* at, std::size_t size, std::size_t count) noexcept {
    std::size_t bytes = 0;
    // glibc takes the product as it is; one that overflows is for it to deal with.
    return !__builtin_mul_overflow(size, count, &bytes) && lease::concerns(at, bytes);
}

// Whether the file system's reads are copies. The last disk that was asked for is remembered, since the question takes
// as long as reading 3 KiB; a number of a device that is no disk may be another file system's the next time.
bool copies(int file, dev_t device) noexcept {
    static constinit std::atomic<dev_t> known{0};
    if (major(device) != 0 && known.load(std::memory_order_relaxed) == device) return true;
    struct statfs system {};
    if (kernel::raw(SYS_fstatfs, file, kernel::word(&system)) != 0 || system.f_type == FUSE_SUPER_MAGIC ||
        system.f_type == V9FS_MAGIC) {
        return false;
    }
    known.store(device, std::memory_order_relaxed);
    return true;
}

// Whether the kernel copies what is read of this stream, as it does out of the page cache. It pins the memory for
// O_DIRECT, and in some file systems of user programs.
bool is_copied(FILE* stream) noexcept {
    const ErrnoKept kept;
    const int file = fileno_unlocked(stream);
    struct stat status {};
    return file >= 0 && kernel::raw(SYS_fstat, file, kernel::word(&status)) == 0 && S_ISREG(status.st_mode) &&
           (kernel::raw(SYS_fcntl, file, F_GETFL) & O_DIRECT) == 0 && copies(file, status.st_dev);
}

// Straight into an object, if that is as good as the CPU's own writes there. Returns bytes; fewer than it was asked for
// at the end of the file, on an error, and where another thread's launch has taken a block meanwhile: then the stream
// is as it was.
std::size_t read_straight(void* at, std::size_t bytes, FILE* stream, StreamLock& lock, const void* caller) {
    constexpr std::size_t kWorthAsking = 16384;
    if (bytes < kWorthAsking || ferror_unlocked(stream) || feof_unlocked(stream) || !is_copied(stream) ||
        !lease::open_to_write(at, bytes, caller)) {
        return 0;
    }
    const int before = std::exchange(errno, 0);
    const auto got = holding(lock, [&] { return next_fread_unlocked(at, 1, bytes, stream); });
    if (got < bytes && ferror_unlocked(stream) && errno == EFAULT) clearerr_unlocked(stream);
    if (errno == 0 || errno == EFAULT) errno = before;
    return got;
}

std::size_t read_items(void* at, std::size_t size, std::size_t count, FILE* stream, bool locked, const void* caller) {
    StreamLock lock(stream, locked);
    const auto bytes = size * count;
    constexpr auto kPiece = lease::Bounce::kRecycled;
    lease::Bounce bounce(at, std::min(bytes, kPiece));
    if (bounce.memory() == nullptr) return 0;
    auto* const to = static_cast<std::byte*>(at);
    // What an earlier call has set ends nothing: glibc asks the file again.
    const bool flagged = feof_unlocked(stream) || ferror_unlocked(stream);
    std::size_t done = 0;
    while (done < bytes) {
        const auto piece = std::min(kPiece - reinterpret_cast<std::uintptr_t>(to + done) % kPiece, bytes - done);
        const auto straight = read_straight(to + done, piece, stream, lock, caller);
        done += straight;
        if (straight == piece) continue;
        if (!flagged && (feof_unlocked(stream) || ferror_unlocked(stream))) break;
        if (straight != 0) continue;
        const auto got = holding(lock, [&] {
            return holding(bounce, [&] { return next_fread_unlocked(bounce.memory(), 1, piece, stream); });
        });
        const auto put = lease::store(to + done, bounce.memory(), got, caller);
        done += put;
        if (put < piece) break;
    }
    return done == bytes ? count : done / size;
}

std::size_t write_items(const void* at, std::size_t size, std::size_t count, FILE* stream, bool locked,
                        const void* caller) {
    lease::ToRead memory(at, size * count, caller);
    if (memory.memory() == nullptr) return 0;
    const auto items = memory.bytes() / size;
    return holding(memory, [&] {
        return locked ? next_fwrite(memory.memory(), size, items, stream)
                      : next_fwrite_unlocked(memory.memory(), size, items, stream);
    });
}

bool concerns(const char* text) noexcept { return lease::concerns(text, 1); }

// How long it is the CPU finds, whose accesses trap. Returns that, and a line's end more, or EOF.
int put_text(const char* text, FILE* stream, bool locked, const void* caller) {
    const auto bytes = std::strlen(text);
    if (bytes != 0 && write_items(text, 1, bytes, stream, locked, caller) != bytes) return EOF;
    return static_cast<int>(std::min(bytes + 1, std::size_t{INT_MAX}));
}

}  // namespace

extern "C" {

HPE_DOOR std::size_t fread(void* at, std::size_t size, std::size_t count, FILE* stream) {
    if (!concerns(at, size, count)) return next_fread(at, size, count, stream);
    return read_items(at, size, count, stream, true, CALLER);
}
HPE_DOOR std::size_t fread_unlocked(void* at, std::size_t size, std::size_t count, FILE* stream) {
    if (!concerns(at, size, count)) return next_fread_unlocked(at, size, count, stream);
    return read_items(at, size, count, stream, false, CALLER);
}
HPE_DOOR std::size_t __fread_chk(void* at, std::size_t room, std::size_t size, std::size_t count, FILE* stream) {
    if (!concerns(at, size, count) || size * count > room) return next_fread_chk(at, room, size, count, stream);
    return read_items(at, size, count, stream, true, CALLER);
}
HPE_DOOR std::size_t __fread_unlocked_chk(void* at, std::size_t room, std::size_t size, std::size_t count,
                                          FILE* stream) {
    if (!concerns(at, size, count) || size * count > room) {
        return next_fread_unlocked_chk(at, room, size, count, stream);
    }
    return read_items(at, size, count, stream, false, CALLER);
}

HPE_DOOR std::size_t fwrite(const void* at, std::size_t size, std::size_t count, FILE* stream) {
    if (!concerns(at, size, count)) return next_fwrite(at, size, count, stream);
    return write_items(at, size, count, stream, true, CALLER);
}
HPE_DOOR std::size_t fwrite_unlocked(const void* at, std::size_t size, std::size_t count, FILE* stream) {
    if (!concerns(at, size, count)) return next_fwrite_unlocked(at, size, count, stream);
    return write_items(at, size, count, stream, false, CALLER);
}

HPE_DOOR int fputs(const char* text, FILE* stream) {
    if (!concerns(text)) return next_fputs(text, stream);
    return put_text(text, stream, true, CALLER) == EOF ? EOF : 1;
}
HPE_DOOR int fputs_unlocked(const char* text, FILE* stream) {
    if (!concerns(text)) return next_fputs_unlocked(text, stream);
    return put_text(text, stream, false, CALLER) == EOF ? EOF : 1;
}
HPE_DOOR int puts(const char* text) {
    if (!concerns(text)) return next_puts(text);
    StreamLock lock(stdout, true);
    return holding(lock, [&] {
        const int put = put_text(text, stdout, false, CALLER);
        return put == EOF || putc_unlocked('\n', stdout) == EOF ? EOF : put;
    });
}

HPE_DOOR int setvbuf(FILE* stream, char* buffer, int mode, std::size_t bytes) noexcept {
    if (!lease::concerns(buffer, bytes)) return next_setvbuf(stream, buffer, mode, bytes);
    return next_setvbuf(stream, nullptr, mode, bytes);
}
HPE_DOOR void setbuffer(FILE* stream, char* buffer, std::size_t bytes) noexcept {
    ::setvbuf(stream, buffer, buffer != nullptr ? _IOFBF : _IONBF, bytes);
}
HPE_DOOR void setbuf(FILE* stream, char* buffer) noexcept { ::setbuffer(stream, buffer, BUFSIZ); }

}  // extern "C"
