// SPDX-License-Identifier: MIT
// Events that several processes on one soft device share (CUDA Driver API, "Event Management", CU_EVENT_INTERPROCESS).
// How they are handed over: ipc.cpp.
//
// Owned by the events of all processes that opened it. Threads: any, of any of the processes. Errors: exceptions of
// type Error (call.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace hpe::soft {

class Context;

// How far an interprocess event has come, in memory that all its processes map.
struct SharedMark {
    std::atomic<std::uint64_t> recorded, done;  // number of the last record asked for, and of the last one reached

    void reach(std::uint64_t record);
    bool reached(std::uint64_t record) const { return done.load(std::memory_order_acquire) >= record; }
    // Until the record is reached or the context ends.
    void wait(std::uint64_t record, const Context& context) const;
};

// A SharedMark and the file that it is in, for other processes to open.
class SharedEvent {
public:
    static std::shared_ptr<SharedEvent> make(int file);  // takes the file; -1: a new one. Throws OUT_OF_MEMORY
    ~SharedEvent();
    SharedEvent(const SharedEvent&) = delete;
    SharedEvent& operator=(const SharedEvent&) = delete;

    SharedMark& mark() const { return *mark_; }
    int file() const { return file_; }

private:
    SharedEvent(int file, SharedMark* mark) : file_(file), mark_(mark) {}
    const int file_;
    SharedMark* const mark_;
};

}  // namespace hpe::soft
