// SPDX-License-Identifier: MIT
// The helper threads: one request at a time each, handed over through futexes (no lock of libc, no allocation).
#include "shim/base/helper.h"

#include <array>
#include <atomic>

#include "shim/base/thread.h"
#include "shim/base/waiting.h"

namespace hpe::helper {

namespace {

struct Request {
    void (*work)(void*);
    void* argument;
    std::atomic<int> done{0};
};

struct Helper {
    std::atomic<Request*> slot{nullptr};
    bool made = false;
};

constinit std::array<Helper, 2> helpers{};
constinit std::atomic<bool> up{false};

Helper& of(Kind kind) noexcept { return helpers[static_cast<std::size_t>(kind)]; }

constexpr std::array<const char*, 2> names{"hpe-transfer", "hpe-fault"};

template <Kind kind>
void serve(void*) noexcept {
    name_this_thread(names[static_cast<std::size_t>(kind)]);
    auto& slot = of(kind).slot;
    for (;;) {
        wait_while(slot, nullptr);
        Request* request = slot.load(std::memory_order_acquire);
        if (request == nullptr) continue;
        request->work(request->argument);
        // Sequentially consistent, here and below: notify looks for sleepers, and must not look before they can see it.
        slot.store(nullptr, std::memory_order_seq_cst);
        slot.notify_all();
        // The request lies on the requester's stack, and is gone once it sees `done`.
        request->done.store(1, std::memory_order_seq_cst);
        request->done.notify_one();
    }
}

constinit std::atomic<void (*)()> for_later{nullptr};
constinit bool later_made = false;

void do_later(void*) noexcept {
    name_this_thread("hpe-later");
    for (;;) {
        wait_while(for_later, nullptr);
        if (auto* const work = for_later.load(std::memory_order_acquire)) work();
        for_later.store(nullptr, std::memory_order_release);
    }
}

template <Kind kind>
bool start_one() noexcept {
    Helper& helper = of(kind);
    if (!helper.made) helper.made = start_thread(serve<kind>);
    return helper.made;
}

}  // namespace

bool start() noexcept {
    if (up.load(std::memory_order_acquire)) return true;
    const bool made = start_one<Kind::Transfer>() && start_one<Kind::Fault>();
    later_made = later_made || start_thread(do_later);  // nobody depends on it
    if (made) up.store(true, std::memory_order_release);
    return made;
}

bool running() noexcept { return up.load(std::memory_order_acquire); }

void run(Kind kind, void (*work)(void*), void* argument) noexcept {
    auto& slot = of(kind).slot;
    Request request{work, argument};
    Request* expected = nullptr;
    while (!slot.compare_exchange_weak(expected, &request, std::memory_order_acq_rel)) {
        if (expected != nullptr) wait_while(slot, expected);
        expected = nullptr;
    }
    slot.notify_all();
    wait_while(request.done, 0);
}

void later(void (*work)()) noexcept {
    void (*none)() = nullptr;
    if (for_later.compare_exchange_strong(none, work, std::memory_order_seq_cst)) for_later.notify_one();
}

void forget() noexcept {
    later_made = false;
    for_later.store(nullptr, std::memory_order_relaxed);
    up.store(false, std::memory_order_relaxed);
    for (Helper& helper : helpers) {
        helper.slot.store(nullptr, std::memory_order_relaxed);
        helper.made = false;
    }
}

}  // namespace hpe::helper
