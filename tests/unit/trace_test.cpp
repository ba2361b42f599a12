// SPDX-License-Identifier: MIT
// Records of a timeline: every one is kept once, whoever makes it and wherever, or counted as dropped.
#include "shim/observe/trace.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

// From here on nothing is there, as in a forked child that goes on.
void begin() {
    trace::in_child(false);
    trace::enabled.store(true);
}

struct Kept {
    std::map<int, std::vector<trace::Record>> by_thread;
    std::size_t count = 0;
};
Kept kept() {
    Kept all;
    trace::for_each(
        [](void* to, const trace::Record& record, int thread, const char*) {
            auto& found = *static_cast<Kept*>(to);
            found.by_thread[thread].push_back(record);
            ++found.count;
        },
        &all);
    return all;
}

trace::Record numbered(std::uint64_t number) { return {.begin = number + 1, .name = "test", .bytes = number * 3}; }

}  // namespace

TEST_CASE("off, nothing is kept") {
    begin();
    trace::enabled.store(false);
    {
        const trace::Span span(trace::Kind::Wait, "wait");
        trace::Transfer transfer(trace::Kind::Fetch, "fetch", 10);
        transfer.done();
        trace::Fault fault(1234, true);
        fault.served(1, 2);
        trace::InStream stream(true);
        stream.sent(100);
        stream.ended(&fault);
    }
    CHECK(kept().count == 0);
    CHECK(trace::dropped() == 0);
}

TEST_CASE("what a record says") {
    begin();
    const auto before = ticks::now();
    {
        const trace::Span span(trace::Kind::Wait, "wait", 7, 8);
        trace::Transfer moved(trace::Kind::Fetch, "moved", 10, 1);
        moved.done();
        const trace::Transfer failed(trace::Kind::Flush, "failed", 20, 2);
        trace::Fault served(1234, true);
        served.served(3, 4096);
        const trace::Fault repeated(5678, false);
        trace::InStream stream(true);
        stream.sent(100);
        stream.sent(200);
        stream.ended(nullptr);
        stream.ended(nullptr);  // nothing since
    }
    const auto after = ticks::now();
    const auto all = kept();
    REQUIRE(all.by_thread.size() == 1);
    const auto& records = all.by_thread.begin()->second;
    REQUIRE(records.size() == 5);
    for (const auto& r : records) {
        CHECK(before <= r.begin);
        CHECK(r.begin <= r.end);
        CHECK(r.end <= after);
    }
    CHECK(records[0].kind == trace::Kind::Stream);
    CHECK(records[0].bytes == 300);
    CHECK(records[0].number == 2);
    CHECK(records[0].flag);
    CHECK(records[1].kind == trace::Kind::Fault);
    CHECK(records[1].place == 1234);
    CHECK(records[1].bytes == 4096);
    CHECK(records[1].number == 3);
    CHECK(records[1].flag);
    CHECK(records[2].failed);
    CHECK(records[2].bytes == 20);
    CHECK_FALSE(records[3].failed);
    CHECK(records[4].bytes == 7);
    CHECK(records[4].number == 8);
}

TEST_CASE("threads that end leave every record") {
    begin();
    constexpr std::size_t threads = 8, each = 20000;
    std::vector<std::thread> all;
    for (std::size_t t = 0; t < threads; ++t) {
        all.emplace_back([t] {
            for (std::size_t i = 0; i < each; ++i) trace::add(numbered(t * each + i));
        });
    }
    for (int i = 0; i < 50; ++i) CHECK(kept().count <= threads * each);  // a reader beside them
    for (auto& thread : all) thread.join();
    auto found = kept();
    CHECK(found.count == threads * each);
    CHECK(trace::dropped() == 0);
    std::vector<bool> seen(threads * each);
    for (const auto& [thread, records] : found.by_thread) {
        for (const auto& r : records) {
            REQUIRE(r.begin - 1 < seen.size());
            CHECK((r.bytes == (r.begin - 1) * 3 && !seen[r.begin - 1]));
            seen[r.begin - 1] = true;
        }
    }
}

namespace {
volatile std::sig_atomic_t in_handler = 0;
void on_timer(int) {
    trace::add(numbered(1u << 20));
    in_handler = in_handler + 1;
}
}  // namespace

// One may come upon another that is being made: none is lost without being counted, and none is torn.
TEST_CASE("records of signal handlers") {
    begin();
    struct sigaction action {};
    action.sa_handler = on_timer;
    REQUIRE(sigaction(SIGALRM, &action, nullptr) == 0);
    const itimerval often{{0, 50}, {0, 50}}, never{};
    REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    std::size_t made = 0;
    while (made < 300000 && in_handler < 2000) {
        trace::add(numbered(made++));
        if (made % 1000 == 0) usleep(1);  // a thread sanitizer delivers signals in such calls only
    }
    REQUIRE(setitimer(ITIMER_REAL, &never, nullptr) == 0);
    const auto found = kept();
    CHECK(in_handler > 0);
    CHECK(found.count + trace::dropped() == made + static_cast<std::size_t>(in_handler));
    std::size_t next = 0, handlers = 0;
    REQUIRE(found.by_thread.size() == 1);
    for (const auto& r : found.by_thread.begin()->second) {
        CHECK(r.bytes == (r.begin - 1) * 3);
        if (r.begin - 1 == 1u << 20) {
            ++handlers;
        } else {
            next += 1;
        }
    }
    CHECK(next == made);
    CHECK(handlers > 0);
}

TEST_CASE("memory is bounded, and what comes after is counted") {
    begin();
    const std::size_t made = trace::kMostBytes / sizeof(trace::Record) + 100000;
    for (std::size_t i = 0; i < made; ++i) trace::add(numbered(i));
    std::thread([] { trace::add(numbered(0)); }).join();
    const auto found = kept();
    CHECK(found.count + trace::dropped() == made + 1);
    CHECK(found.count * sizeof(trace::Record) <= trace::kMostBytes);
    CHECK(found.count * sizeof(trace::Record) > trace::kMostBytes / 10 * 9);
    trace::in_child(false);
    CHECK(kept().count == 0);
    CHECK(trace::dropped() == 0);
    trace::add(numbered(5));
    CHECK(kept().count == 1);
}

TEST_CASE("without memory records are dropped, and errno stays") {
    begin();
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    const rlimit none{1, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
    errno = 77;
    trace::add(numbered(0));
    const int after = errno;
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(after == 77);
    CHECK(kept().count == 0);
    CHECK(trace::dropped() == 1);
}

TEST_CASE("where ticks are counted it is noted what they are worth") {
    begin();
    ticks::by_counter = true;
    for (int i = 0; i < 50; ++i) trace::add_until_now({.begin = ticks::now(), .name = "test"});
    std::thread([] { trace::add_until_now({.begin = ticks::now(), .name = "test"}); }).join();
    // A kernel's times are nanoseconds: nothing is told by them.
    std::thread([] { trace::add({.begin = 1, .end = ~0ull, .name = "test", .kind = trace::Kind::Kernel}); }).join();
    ticks::by_counter = false;
    const auto all = kept();
    REQUIRE(all.by_thread.size() == 3);
    std::vector<std::size_t> points;
    for (const auto& [thread, records] : all.by_thread) {
        const auto is_point = [](const auto& r) { return r.kind == trace::Kind::Point; };
        points.push_back(static_cast<std::size_t>(std::count_if(records.begin(), records.end(), is_point)));
        if (records.size() == 1) continue;
        CHECK(is_point(records[1]));
        CHECK(records[1].begin >= records[0].end);
    }
    std::sort(points.begin(), points.end());
    CHECK(points[0] == 0);
    CHECK(points[1] == 1);
    CHECK(points[2] >= 1);  // and another one every second
    CHECK(points[2] < 25);
}
