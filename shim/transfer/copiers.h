// SPDX-License-Identifier: MIT
// Helper threads that copy memory, read files into it, touch it for the first time, and whatever else is done by parts,
// for all transfers of the process. The caller hands a copy over once, however many helpers take part. The caller takes
// part, too: it copies the parts that no helper has begun, so that a small copy never waits for a large one, and a copy
// ends without helpers.
//
// The first start() makes the helpers. They sleep when there is nothing to do, and do not exist in a forked child,
// where libhpe is inert. They do not block SIGSEGV and SIGBUS: the program's own handler may provide the memory that
// they copy.
//
// Parts are taken by counting, without a lock. Behind a spin lock the same queue is ten lines shorter, and slower where
// a part is short (an H100 and 16 processors, GB/s to the device and to the host, medians of six runs in turn);
// besides, a signal handler of the program's that faults while its thread holds the lock would wait for ever.
//
//             64 KiB     1 MiB        16 MiB       64 MiB       256 MiB      both ways at once
//   counting  4.1  4.2   24.0  21.9   41.6  45.4   47.8  51.0   47.4  52.8   83
//   lock      4.0  4.4   13.5  10.0   35.5  40.9   39.9  50.6   44.9  52.7   77
//
// Threads: any, outside the fault path or inside it: no allocation, no lock (start() and place() lock, and are called
// outside it). Sizes in bytes; the memory belongs to the caller and must stay until the job is finished. Errors: none;
// start() says how many helpers there are.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe::copiers {

// Makes the helpers if there are none yet. `wanted` 0: none. Returns how many run.
unsigned start(unsigned wanted) noexcept;
unsigned running() noexcept;
// Before helpers serve another device, the processors near it; nullptr: they are not known, or too few. From the next
// job on helpers run near the first device; anywhere, once they serve one that is elsewhere. Returns how many
// processors that leaves them; 0: all that the process has.
unsigned place(const cpu_set_t* near) noexcept;

// Who reads the bytes next. A copy leaves them in this processor's caches, in no cache (stream_copy.h), or in the cache
// that all processors share (shared_copy.h).
enum class Reader : std::uint8_t { Processor, Nobody, Device };

// Which helpers may take parts of a job: all, or only the first kFew, where more would only compete with the device for
// memory.
enum class Crew : std::uint8_t { Few, All };
constexpr unsigned kFew = 10;

// `count` rows of `width` bytes, with a pitch on either side; one row: plain memory.
struct Rows {
    std::byte* to;
    const std::byte* from;
    std::size_t width;  // of a row
    std::size_t count = 1;
    std::size_t to_pitch = 0, from_pitch = 0;  // from row to row

    // The rows [first, first + rows).
    Rows part(std::size_t first, std::size_t rows) const noexcept {
        return {to + first * to_pitch, from + first * from_pitch, width, rows, to_pitch, from_pitch};
    }
};

// A regular file that is read instead. Nothing of it is waited for: who reads here may hold what others wait for, and a
// disk takes milliseconds.
struct File {
    int descriptor = -1;
    int flags = 0;            // of preadv2(2)
    std::int64_t offset = 0;  // in the file, of the first byte

    static File at_hand(int descriptor) noexcept;
    File from(std::int64_t first) const noexcept { return {descriptor, flags, first}; }
};

struct Place;
struct Work;

// A copy that was handed over, in parts. It is finished exactly once, by the thread that made it.
class Job {
public:
    // Hands the copy over in parts of about so many bytes, whole rows where there are several. If every place is taken,
    // or there are no helpers, copies it here and now.
    void begin(const Rows& rows, std::size_t part, Reader reader, Crew crew = Crew::All) noexcept;
    // Reads a file instead. `incomplete` is set where bytes are not at hand (not in the page cache), or missing.
    void begin_reading(std::byte* to, const File& from, std::size_t bytes, std::size_t part,
                       std::atomic<bool>& incomplete) noexcept;
    // Has a function called instead: call(context, offset, bytes) for each part, in any order.
    using Call = void(void* context, std::size_t offset, std::size_t bytes);
    void begin_calls(std::size_t bytes, std::size_t part, Call* call, void* context, Crew crew = Crew::All) noexcept;
    // Copies a part here that nobody has begun; false if there is none.
    bool help() noexcept;
    bool done() const noexcept;
    void finish() noexcept;

private:
    void hand_over(const Work& work, std::size_t part, Crew crew) noexcept;
    Place* place_ = nullptr;  // nullptr: no job, or its own thread has done it
};

// Copies on the calling thread.
void move(const Rows& rows, Reader reader) noexcept;

// The same with helpers, if there is enough to copy.
void move_together(void* to, const void* from, std::size_t bytes, Reader reader) noexcept;

// Reads a regular file's bytes, with helpers. False: not all were at hand, or there; the memory's content is undefined
// then.
bool read_together(std::byte* to, const File& from, std::size_t bytes) noexcept;

// Maps the pages of [at, at + bytes), whole pages of shared memory; with helpers if the pages must be `made`. With
// kernels before Linux 5.14 the accesses map them.
void map_pages(void* at, std::size_t bytes, bool made) noexcept;

}  // namespace hpe::copiers
