// SPDX-License-Identifier: MIT
// Helper threads that copy memory: every byte arrives, whoever copies it; and the copy that writes past the caches.
#include "shim/runtime/copiers.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shim/base/shared_copy.h"
#include "shim/base/stream_copy.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

using Bytes = std::vector<unsigned char>;

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
        all[i].begin({at(to[i], 0), at(from[i], 0), from[i].size()}, static_cast<copiers::Reader>(i % 3));
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

TEST_CASE("rows land where they belong, and nothing between them changes") {
    struct Shape {
        std::size_t width, count, to_gap, from_gap;
    };
    for (const Shape s : {Shape{1, 9, 3, 0}, {100, 50, 0, 28}, {4095, 7, 1, 1}, {4096, 7, 64, 0}, {70001, 3, 0, 5}}) {
        for (const auto reader : {copiers::Reader::Processor, copiers::Reader::Nobody, copiers::Reader::Device}) {
            const auto to_pitch = s.width + s.to_gap, from_pitch = s.width + s.from_gap;
            Bytes from = noise(from_pitch * s.count, 6), to(to_pitch * s.count, 0xee);
            const copiers::Rows rows{at(to, 0), at(from, 0), s.width, s.count, to_pitch, from_pitch};
            const auto half = s.count / 2;
            copiers::move(rows.part(0, half), reader);
            copiers::Job job;
            job.begin(rows.part(half, s.count - half), reader);
            job.finish();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < to.size(); ++i) {
                const auto row = i / to_pitch, column = i % to_pitch;
                wrong += to[i] != (column < s.width ? from[row * from_pitch + column] : 0xee);
            }
            INFO(s.count << " rows of " << s.width);
            CHECK(wrong == 0);
        }
    }
}

namespace {

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
TEST_CASE("a copy made together is whole without helpers") { CHECK(copy_together() == 0); }

TEST_CASE("pages are mapped without helpers") { mapped_pages_do_not_trap(); }

TEST_CASE("jobs end with and without helpers, one thread and many") {
    CHECK(copiers::start(0) == 0);
    CHECK(copy_all(50, 1, true) == 0);
    CHECK(copiers::start(3) == 3);
    CHECK(copiers::start(8) == 3);        // they are there
    CHECK(copy_all(700, 2, false) == 0);  // more than there are places
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
    REQUIRE(copiers::start(3) == 3);
    CHECK(copy_together() == 0);
}

TEST_CASE("pages are mapped with helpers") {
    CHECK(copiers::running() == 3);
    mapped_pages_do_not_trap();
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

TEST_CASE("helpers run where they are placed from the next job on, and the caller where it was") {
    cpu_set_t mine, one, now;
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
        if (CPU_ISSET(i, &mine)) CPU_SET(i, &one);
    }
    const auto helpers = copiers::start(3);
    REQUIRE(helpers != 0);
    for (const auto* set : {&one, &mine}) {
        copiers::place(*set);
        // Each job wakes all that sleep.
        for (int i = 0; i < 10000 && helpers_on(*set) != helpers; ++i) CHECK(copy_all(1, 3, false) == 0);
        CHECK(helpers_on(*set) == helpers);
    }
    REQUIRE(sched_getaffinity(0, sizeof now, &now) == 0);
    CHECK(CPU_EQUAL(&now, &mine));
}
