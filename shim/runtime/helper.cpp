// SPDX-License-Identifier: MIT
// The helper thread: one request at a time, handed over through futexes (no lock of libc, no allocation).
#include "shim/runtime/helper.h"

#include <atomic>
#include <mutex>

#include "shim/base/thread.h"

namespace hpe::helper {

namespace {

struct Request {
    void (*work)(void*);
    void* argument;
    std::atomic<int> done{0};
};

constinit std::atomic<Request*> slot{nullptr};
constinit std::atomic<bool> up{false};
constinit std::mutex start_mutex;

void serve(void*) noexcept {
    for (;;) {
        slot.wait(nullptr, std::memory_order_acquire);
        Request* request = slot.load(std::memory_order_acquire);
        if (request == nullptr) continue;
        request->work(request->argument);
        // Sequentially consistent, here and below: notify looks for sleepers, and must not look before they can see it.
        slot.store(nullptr, std::memory_order_seq_cst);
        slot.notify_all();
        // The requester's stack: not touched after `done` is seen, so say it last.
        request->done.store(1, std::memory_order_seq_cst);
        request->done.notify_one();
    }
}

}  // namespace

bool start() noexcept {
    if (up.load(std::memory_order_acquire)) return true;
    std::scoped_lock lock(start_mutex);
    if (up.load(std::memory_order_relaxed)) return true;
    const bool made = start_thread("hpe-helper", serve);
    if (made) up.store(true, std::memory_order_release);
    return made;
}

bool running() noexcept { return up.load(std::memory_order_acquire); }

void run(void (*work)(void*), void* argument) noexcept {
    Request request{work, argument};
    Request* expected = nullptr;
    while (!slot.compare_exchange_weak(expected, &request, std::memory_order_acq_rel)) {
        if (expected != nullptr) slot.wait(expected, std::memory_order_acquire);
        expected = nullptr;
    }
    slot.notify_all();
    request.done.wait(0, std::memory_order_acquire);
}

void forget() noexcept {
    up.store(false, std::memory_order_relaxed);
    slot.store(nullptr, std::memory_order_relaxed);
}

}  // namespace hpe::helper
