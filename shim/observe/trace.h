// SPDX-License-Identifier: MIT
// Records of what happened when (HPE_TRACE), in memory until the timeline is written at exit. Each thread writes into
// chunks of its own, which stay when it ends. While recording is off, each place that records costs a load and a
// branch.
//
// Threads: any, also in the fault path: no allocation but mmap, no lock; errno is kept. A record made in a signal
// handler that came upon another one being made is dropped, as is what exceeds kMostBytes; dropped ones are counted.
// Names must live for ever. Times are ticks (ticks.h); the writer makes nanoseconds of CLOCK_MONOTONIC of them, which
// is one clock for all processes of a machine. Errors: none but what is dropped; a file that cannot be written is said
// in one line.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/base/flag.h"
#include "shim/base/ticks.h"

namespace hpe::trace {

// Memory for one process's records: some 600,000.
constexpr std::size_t kMostBytes = std::size_t{32} << 20;

enum class Kind : std::uint8_t {
    Call,     // of the program; bytes, number: its result, flag: a launch whose kernel has no times
    Fault,    // a CPU access that trapped; address, bytes fetched, number: the object, flag: a write
    Wait,     // for the device
    Fetch,    // of blocks; bytes, number: the object
    Flush,    // likewise
    Staging,  // a copy through bounce buffers; bytes
    Setup,    // what libhpe makes once and keeps: helper threads, bounce buffers; bytes
    Copy,     // by the CPU: a thread's share of a staged copy; bytes
    Stream,   // transfers in a stream of the engine's; context, bytes, number: how many, flag: to the host
    Kernel,   // context, stream, number: the thread whose own stream it is; times in nanoseconds
    Point,    // begin: ticks, end: the nanoseconds that they are; for the writer
};
constexpr std::size_t kKinds = 10;  // that are shown

struct Record {
    std::uint64_t begin = 0, end = 0;
    const char* name = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t place = 0;   // an address, or a context
    std::uint64_t stream = 0;  // handle
    std::uint64_t ticket = 0;  // of the stack of a call or fault (call_stacks.h)
    std::uint32_t number = 0;
    Kind kind = Kind::Call;
    bool flag = false;
    bool failed = false;  // the bytes did not move
};

HPE_HIDDEN extern constinit Flag enabled;
inline bool on() noexcept { return enabled.load(std::memory_order_relaxed); }

// Keeps a copy of the record, as the calling thread's.
[[gnu::hot]] void add(const Record& record) noexcept;
[[gnu::hot]] void add_until_now(Record record) noexcept;

// A span of the calling thread, from construction to destruction.
class Span {
public:
    Span(Kind kind, const char* name, std::size_t bytes = 0, std::uint32_t number = 0) noexcept
        : record_{.begin = on() ? ticks::now() : 0, .name = name, .bytes = bytes, .number = number, .kind = kind} {}
    ~Span() {
        if (record_.begin != 0) [[unlikely]]
            add_until_now(record_);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

protected:
    Record record_;  // begin 0: it is not kept
};

// A thread's share of a copy, part by part.
class Share : public Span {
public:
    Share() noexcept : Span(Kind::Copy, "copy") {}
    ~Share() {
        if (record_.bytes == 0) record_.begin = 0;
    }
    void add(std::size_t bytes) noexcept { record_.bytes += bytes; }
};

// A transfer: the bytes count as moved if done() is called before its end.
class Transfer : public Span {
public:
    Transfer(Kind kind, const char* name, std::size_t bytes, std::uint32_t number = 0) noexcept
        : Span(kind, name, bytes, number) {
        record_.failed = true;
    }
    void done() noexcept { record_.failed = false; }
};

// An access that trapped. Recorded only if it was served: otherwise the access is repeated and traps again.
class Fault : public Span {
public:
    Fault(std::uintptr_t address, bool is_write) noexcept : Span(Kind::Fault, is_write ? "write fault" : "read fault") {
        record_.place = address;
        record_.flag = is_write;
    }
    ~Fault() {
        if (!served_) record_.begin = 0;
    }
    void served(std::uint32_t object, std::size_t fetched) noexcept {
        record_.number = object;
        record_.bytes = fetched;
        served_ = true;
    }
    void stack(std::uint64_t ticket) noexcept { record_.ticket = ticket; }

private:
    bool served_ = false;
};

// Transfers in a stream of the engine's, from the issue of the first until all are known to have ended. Guarded by the
// caller's lock.
class InStream {
public:
    explicit constexpr InStream(bool to_host) noexcept
        : record_{.name = to_host ? "to host" : "to device", .kind = Kind::Stream, .flag = to_host} {}
    void sent(std::size_t bytes) noexcept {
        if (!on()) [[likely]]
            return;
        if (record_.number++ == 0) record_.begin = ticks::now();
        record_.bytes += bytes;
    }
    void ended(const void* context) noexcept {
        if (record_.number != 0) [[unlikely]] {
            record_.place = reinterpret_cast<std::uintptr_t>(context);
            add_until_now(record_);
            forget();
        }
    }
    void forget() noexcept { record_.begin = record_.bytes = record_.number = 0; }

private:
    Record record_;
};

// "": none. Otherwise a path, its %p and %r replaced (output.h). Once, before anything is to be recorded: chooses the
// clock.
void configure(const std::string& destination);
// Ends recording and writes the timeline, once. Outside the fault path.
void write() noexcept;
// In a forked child: drops what the parent recorded. A child that is `inert` has no device and records nothing.
void in_child(bool inert) noexcept;

// Calls back for all records so far, in no order, with the thread's id and name: for the writer. Records made meanwhile
// may be missed.
using Each = void (*)(void* argument, const Record& record, int thread, const char* name);
void for_each(Each each, void* argument);
std::uint64_t dropped() noexcept;

}  // namespace hpe::trace
