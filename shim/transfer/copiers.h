// SPDX-License-Identifier: MIT
// Helper threads that copy memory, read files into it, and touch it for the first time, for all transfers of the
// process. A copy is handed over once, however many take part in it: handing over is what the caller alone must do. The
// caller takes part: what no helper has begun it copies itself, so that a small copy never waits behind a large one,
// and one without helpers still ends.
//
// They are made by the first start(), sleep when there is nothing to do, and are gone in a forked child, where libhpe
// does nothing more. SIGSEGV and SIGBUS stay open to them: memory that the program handed to a copy may be one that its
// own handler brings.
//
// Threads: any, outside the fault path or inside it: no allocation, no lock (start() alone makes threads). Sizes in
// bytes; the memory belongs to the caller and must stay until the job is finished. Errors: none; start() says how many
// helpers there are.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hpe::copiers {

// Makes the helpers if there are none yet. `wanted` 0: none. Returns how many run.
unsigned start(unsigned wanted) noexcept;
unsigned running() noexcept;
// Where they run from the next job on.
void place(const cpu_set_t& processors) noexcept;

// Who reads the bytes next, and so where a copy leaves them: in this processor's caches, in none (stream_copy.h), or in
// the one that all share (shared_copy.h).
enum class Reader : std::uint8_t { Processor, Nobody, Device };

// Who may begin a job: every helper, or the first kFew alone, where more would only get in the device's way to memory.
enum class Crew : std::uint8_t { Few, All };
constexpr unsigned kFew = 10;

// Rows of so many bytes each, so far apart on either side; one row: plain memory.
struct Rows {
    std::byte* to;
    const std::byte* from;
    std::size_t width;  // of a row
    std::size_t count = 1;
    std::size_t to_pitch = 0, from_pitch = 0;  // from row to row

    // Some of them.
    Rows part(std::size_t first, std::size_t rows) const noexcept {
        return {to + first * to_pitch, from + first * from_pitch, width, rows, to_pitch, from_pitch};
    }
};

// A file that is read instead; nothing of it is waited for.
struct File {
    int descriptor = -1;
    std::int64_t offset = 0;                  // in the file, of the first byte
    std::atomic<bool>* incomplete = nullptr;  // set where bytes are not at hand (not in the page cache), or missing
};

struct Place;

// A copy that was handed over, in parts. It is finished exactly once, by the thread that made it.
class Job {
public:
    // In parts of about so many bytes, whole rows where there are several. If every place is taken, or there are no
    // helpers, it is copied here and now.
    void begin(const Rows& rows, std::size_t part, Reader reader, Crew crew = Crew::All) noexcept;
    // Pages to be mapped instead, so that first accesses to them do not trap one by one.
    void begin_mapping(void* at, std::size_t bytes, std::size_t part) noexcept;
    void begin_reading(std::byte* to, const File& file, std::size_t bytes, std::size_t part) noexcept;
    // Copies a part here that nobody has begun; false if there is none.
    bool help() noexcept;
    bool done() const noexcept;
    void finish() noexcept;

private:
    void hand_over(const Rows& rows, std::size_t part, Reader reader, Crew crew, const File& file = {}) noexcept;
    Place* place_ = nullptr;  // nullptr: none, or done by its own thread
};

// The copying itself, by the caller.
void move(const Rows& rows, Reader reader) noexcept;

// The same with the helpers' help, where there is enough to do.
void move_together(void* to, const void* from, std::size_t bytes, Reader reader) noexcept;

// Reads a regular file's bytes, with the helpers' help. False: not all were at hand, or there; what is in memory then
// is undefined.
bool read_together(std::byte* to, int file, std::int64_t offset, std::size_t bytes) noexcept;

// Maps the pages of [at, at + bytes), whole pages of shared memory; with the helpers' help if they must be `made`.
// Kernels before Linux 5.14 leave it to the accesses.
void map_pages(void* at, std::size_t bytes, bool made) noexcept;

}  // namespace hpe::copiers
