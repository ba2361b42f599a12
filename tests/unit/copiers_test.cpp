// SPDX-License-Identifier: MIT
// Helper threads that copy memory: every byte arrives, whoever copies it; and the copy that writes past the caches.
#include "shim/transfer/copiers.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shim/base/shared_copy.h"
#include "shim/base/stream_copy.h"
#include "tests/unit/catch.h"
#include "tests/unit/futex_calls.h"

using namespace hpe;

namespace {

using Bytes = std::vector<unsigned char>;

// More than take part in large copies.
constexpr unsigned kHelpers = copiers::kFew + 3;

Bytes noise(std::size_t n, unsigned seed) {
    Bytes bytes(n);
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>((i + 1) * (seed * 2654435761u + 77) >> 9);
    return bytes;
}

std::byte* at(Bytes& bytes, std::size_t offset) { return reinterpret_cast<std::byte*>(bytes.data() + offset); }

// Returns how many bytes are wrong.
std::size_t copy_together() {
    std::size_t wrong = 0;
    for (const std::size_t n : {0u, 1u, 4095u, (128u << 10) - 1, 128u << 10, (1u << 20) + 7, (9u << 20) + 12345}) {
        const Bytes from = noise(n, 5);
        Bytes to(n + 1, 0xee);
        copiers::move_together(to.data(), from.data(), n, copiers::Reader::Processor);
        for (std::size_t i = 0; i < n; ++i) wrong += to[i] != from[i];
        wrong += to[n] != 0xee;
    }
    return wrong;
}

// Many jobs at once, of sizes to 300 KB; returns how many bytes are wrong.
std::size_t copy_all(std::size_t jobs, unsigned seed, bool help) {
    std::vector<Bytes> from, to;
    std::vector<copiers::Job> all(jobs);
    for (std::size_t i = 0; i < jobs; ++i) {
        const bool large = (i * 7919 + seed * 31) % 5 == 0;
        from.push_back(noise(1 + (large ? i * 1021 % 300000 : i * 37 % 4096), seed + static_cast<unsigned>(i)));
        to.emplace_back(from.back().size() + 1, static_cast<unsigned char>(0xee));
    }
    for (std::size_t i = 0; i < jobs; ++i)
        all[i].begin({at(to[i], 0), at(from[i], 0), from[i].size()}, 1 + i * 509 % 70000,
                     static_cast<copiers::Reader>(i % 3), static_cast<copiers::Crew>(i / 3 % 2));
    for (std::size_t i = 0; help && i < jobs; i += 3) all[jobs - 1 - i].help();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < jobs; ++i) {
        all[i].finish();
        if (!all[i].done()) ++wrong;
        for (std::size_t k = 0; k < from[i].size(); ++k) wrong += to[i][k] != from[i][k];
        wrong += to[i].back() != 0xee;
    }
    return wrong;
}

}  // namespace

TEST_CASE("copies for other readers move every byte and no other") {
    const auto copy = GENERATE(stream_copy, shared_copy);
    for (const std::size_t bytes :
         {0u, 1u, 15u, 63u, 64u, 65u, 4095u, 4096u, 16383u, 16384u, 16385u, 70000u, 163840u}) {
        for (const std::size_t shift : {0u, 1u, 16u, 63u}) {
            const Bytes from = noise(bytes + 3, 5);
            Bytes to(bytes + shift + 1, static_cast<unsigned char>(0xee));
            copy(to.data() + shift, from.data() + 3, bytes);
            INFO(bytes << " bytes, shifted by " << shift);
            CHECK(std::memcmp(to.data() + shift, from.data() + 3, bytes) == 0);
            CHECK(to.back() == 0xee);
            CHECK((shift == 0 || to[shift - 1] == 0xee));
        }
    }
}

namespace {

// In parts of all sizes: where they belong, and nothing between them changes.
void rows_land() {
    struct Shape {
        std::size_t width, count, to_gap, from_gap;
    };
    const auto s = GENERATE(Shape{1, 9, 3, 0}, Shape{100, 50, 0, 28}, Shape{4095, 7, 1, 1}, Shape{4096, 7, 64, 0},
                            Shape{70001, 3, 0, 5}, Shape{2, 150001, 1, 0});  // the last: more than a job has parts
    const auto reader = GENERATE(copiers::Reader::Processor, copiers::Reader::Nobody, copiers::Reader::Device);
    const auto part = GENERATE(std::size_t{1}, std::size_t{8192}, std::size_t{1} << 20);
    const auto to_pitch = s.width + s.to_gap, from_pitch = s.width + s.from_gap;
    Bytes from = noise(from_pitch * s.count, 6), to(to_pitch * s.count, 0xee);
    const copiers::Rows rows{at(to, 0), at(from, 0), s.width, s.count, to_pitch, from_pitch};
    const auto half = s.count / 2;
    copiers::move(rows.part(0, half), reader);
    copiers::Job job;
    job.begin(rows.part(half, s.count - half), part, reader);
    job.finish();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < to.size(); ++i) {
        const auto row = i / to_pitch, column = i % to_pitch;
        wrong += to[i] != (column < s.width ? from[row * from_pitch + column] : 0xee);
    }
    INFO(s.count << " rows of " << s.width);
    CHECK(wrong == 0);
}

// Traps that the first writes to every page of `bytes` of shared memory take.
long traps(std::size_t bytes, bool mapped) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    if (mapped) copiers::map_pages(memory, bytes, true);
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    for (std::size_t i = 0; i < bytes; i += 4096) static_cast<volatile unsigned char*>(memory)[i] = 1;
    getrusage(RUSAGE_THREAD, &after);
    munmap(memory, bytes);
    return after.ru_minflt - before.ru_minflt;
}

void mapped_pages_do_not_trap() {
    constexpr int kPopulateRead = 22;  // Linux 5.14; what older kernels do not know is left to the accesses
    alignas(4096) static char page[4096];
    if (madvise(page, sizeof page, kPopulateRead) != 0) {
        WARN("this kernel maps no pages ahead");
        return;
    }
    for (const std::size_t pages : {1, 3, 64, 65, 1000, 16384 + 7}) {
        INFO(pages << " pages");
        const auto without = traps(pages * 4096, false);
        // A difference: a sanitizer's own memory traps beside each page.
        CHECK(without - traps(pages * 4096, true) >= static_cast<long>(pages - pages / 8));
    }
}

}  // namespace

// In this order: there are no helpers at first.
namespace {

// Each byte in exactly one part, and parts where multiples of the size begin.
void calls_for_every_byte_once() {
    for (const std::size_t bytes : {0u, 1u, 4096u, 4097u, 1000000u}) {
        std::vector<std::atomic<unsigned>> seen(bytes + 1);
        copiers::Job job;
        job.begin_calls(
            bytes, 4096,
            [](void* context, std::size_t offset, std::size_t size) {
                auto& times = *static_cast<std::vector<std::atomic<unsigned>>*>(context);
                const bool right = offset % 4096 == 0 && size <= 4096;
                for (std::size_t i = offset; i < offset + size; ++i) times[i] += right ? 1 : 100;
            },
            &seen);
        job.finish();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i <= bytes; ++i) wrong += seen[i] != (i < bytes ? 1u : 0u);
        INFO(bytes << " bytes");
        CHECK(wrong == 0);
    }
}

}  // namespace

TEST_CASE("a function is called for every byte once without helpers") { calls_for_every_byte_once(); }

TEST_CASE("a copy made together is whole without helpers") { CHECK(copy_together() == 0); }

TEST_CASE("rows land where they belong without helpers") { rows_land(); }

TEST_CASE("pages are mapped without helpers") { mapped_pages_do_not_trap(); }

TEST_CASE("jobs end with and without helpers, one thread and many") {
    CHECK(copiers::start(0) == 0);
    CHECK(copy_all(50, 1, true) == 0);
    CHECK(copiers::start(kHelpers) == kHelpers);
    CHECK(copiers::start(2) == kHelpers);  // they are there
    CHECK(copy_all(700, 2, false) == 0);   // more than there are places
    CHECK(copy_all(700, 3, true) == 0);
    std::atomic<std::size_t> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; ++t) {
        threads.emplace_back([t, &wrong] {
            for (unsigned round = 0; round < 20; ++round)
                wrong += copy_all(20 + t * 13, t * 100 + round, round % 2 == 0);
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    // One after the other, so that helpers fall asleep between.
    for (unsigned i = 0; i < 40; ++i) {
        CHECK(copy_all(1 + i % 3, i, false) == 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
    }
}

TEST_CASE("a copy made together is whole with helpers") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    CHECK(copy_together() == 0);
}

TEST_CASE("a function is called for every byte once with helpers") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    calls_for_every_byte_once();
}

TEST_CASE("rows land where they belong with helpers") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    rows_land();
}

TEST_CASE("pages are mapped with helpers") {
    CHECK(copiers::running() == kHelpers);
    mapped_pages_do_not_trap();
}

namespace {

// Pages that a reader waits at until they are opened, as at memory that a handler of the program's brings.
class Gate {
public:
    static constexpr std::size_t kPage = 4096, kPages = kHelpers + 5;

    Gate() {
        pages_ = static_cast<std::byte*>(mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(pages_ != MAP_FAILED);
        waiting_ = 0;
        opened_ = false;
        struct sigaction action {};
        action.sa_handler = wait;
        sigaction(SIGSEGV, &action, &before_);
    }
    ~Gate() {
        sigaction(SIGSEGV, &before_, nullptr);
        munmap(pages_, kPages * kPage);
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    std::byte* page(std::size_t i) const { return pages_ + i * kPage; }
    void open() {
        mprotect(pages_, kPages * kPage, PROT_READ | PROT_WRITE);
        opened_ = true;
    }
    // How many wait, once so many do, and a little later, when more might.
    static unsigned waiting(unsigned expected) {
        const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
        for (int i = 0; i < 20000 && waiting_ < expected; ++i) pause();
        for (int i = 0; i < 50; ++i) pause();
        return waiting_;
    }

private:
    static void wait(int) {
        ++waiting_;
        while (!opened_) usleep(100);
    }
    static inline std::atomic<unsigned> waiting_{0};
    static inline std::atomic<bool> opened_{false};
    std::byte* pages_ = nullptr;
    struct sigaction before_ {};
};

// Without the caller's help.
bool done_by_helpers(const copiers::Job& job) {
    for (int i = 0; i < 20000 && !job.done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return job.done();
}

}  // namespace

TEST_CASE("jobs for few are begun by so many helpers and no more, while the others do what all may do") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    for (const bool asleep : {false, true}) {
        if (asleep) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        Gate gate;
        std::array<Bytes, 2> to{Bytes(Gate::kPages * Gate::kPage, 0xee), Bytes(Gate::kPages * Gate::kPage, 0xee)};
        std::array<copiers::Job, 2> few;
        for (std::size_t i = 0; i < few.size(); ++i) {
            few[i].begin({at(to[i], 0), gate.page(0), to[i].size()}, Gate::kPage, copiers::Reader::Processor,
                         copiers::Crew::Few);
        }
        CHECK(gate.waiting(copiers::kFew) == copiers::kFew);
        const Bytes from = noise(5000, 9);
        Bytes others(5000, 0xee);
        copiers::Job job;
        job.begin({at(others, 0), reinterpret_cast<const std::byte*>(from.data()), from.size()}, std::size_t{1} << 20,
                  copiers::Reader::Processor);
        CHECK(done_by_helpers(job));
        job.finish();
        CHECK(others == from);
        gate.open();
        for (auto& one : few) one.finish();
        for (const auto& bytes : to) CHECK(bytes == Bytes(bytes.size(), 0));
    }
}

TEST_CASE("helpers that were held up take jobs again, though many came and went meanwhile") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    Bytes to(Gate::kPages * Gate::kPage, 0xee);
    {
        Gate gate;
        copiers::Job held;
        held.begin({at(to, 0), gate.page(0), to.size()}, Gate::kPage, copiers::Reader::Processor);
        CHECK(gate.waiting(kHelpers) == kHelpers);
        CHECK(copy_all(700, 4, true) == 0);
        CHECK(!held.done());
        gate.open();
        held.finish();
    }
    for (const auto crew : {copiers::Crew::Few, copiers::Crew::All}) {
        copiers::Job job;
        Bytes from = noise(to.size(), 8);
        job.begin({at(to, 0), at(from, 0), to.size()}, 1000, copiers::Reader::Processor, crew);
        CHECK(done_by_helpers(job));
        job.finish();
        CHECK(to == from);
    }
}

namespace {

// How many helpers may run on exactly these processors.
unsigned helpers_on(const cpu_set_t& wanted) {
    unsigned count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        cpu_set_t set;
        if (name == "hpe-copier" && sched_getaffinity(std::stoi(task.path().filename()), sizeof set, &set) == 0) {
            count += CPU_EQUAL(&set, &wanted) != 0;
        }
    }
    return count;
}

}  // namespace

TEST_CASE("helpers run near the first device, anywhere once they serve another, and the caller where it was") {
    cpu_set_t mine, one, now;
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
        if (CPU_ISSET(i, &mine)) CPU_SET(i, &one);
    }
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    const auto check = [&](const cpu_set_t* near, unsigned processors, const cpu_set_t& wanted) {
        CHECK(copiers::place(near) == processors);
        // Each job wakes all that sleep and may begin it.
        for (int i = 0; i < 10000 && helpers_on(wanted) != kHelpers; ++i) CHECK(copy_all(4, 3, false) == 0);
        CHECK(helpers_on(wanted) == kHelpers);
    };
    check(&one, 1, one);
    check(&one, 1, one);
    check(nullptr, 0, mine);
    check(&one, 0, mine);
    REQUIRE(sched_getaffinity(0, sizeof now, &now) == 0);
    CHECK(CPU_EQUAL(&now, &mine));
}

namespace {

// Whether all helpers are asleep.
bool helpers_sleep() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string id, name, state;
        std::ifstream(task.path() / "stat") >> id >> name >> state;
        if (name == "(hpe-copier)" && state != "S") return false;
    }
    return true;
}

}  // namespace

// The last of this file: what the bell wakes nobody for leaves the helpers asleep.
TEST_CASE("the end of a job is no system call where its thread does not sleep, though helpers do") {
    REQUIRE(copiers::start(kHelpers) == kHelpers);
    const Bytes from = noise(200000, 9);
    Bytes to(from.size(), 0xee);
    int calls = -1;
    std::thread([&] {
        if (!futex_calls::begin()) return;
        // Until all helpers sleep one may be about to, and the bell is rung for it.
        constexpr int kRounds = 1000, kQuiet = 100;
        for (int round = 0, quiet = 0; round < kRounds && quiet < kQuiet; ++round) {
            while (!helpers_sleep()) std::this_thread::yield();
            futex_calls::count = 0;
            copiers::move_together(to.data(), from.data(), from.size(), copiers::Reader::Processor);
            calls = futex_calls::count;
            quiet = calls == 0 ? quiet + 1 : 0;
        }
    }).join();
    if (calls < 0) WARN("no filter of system calls here");
    CHECK(calls <= 0);
    CHECK(to == from);
}
