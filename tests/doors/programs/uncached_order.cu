// SPDX-License-Identifier: MIT
// CPU accesses to memory of which no host copy is kept, while other threads use it or memory beside it, and while it
// comes and goes: each thread's accesses and calls have the order in which it makes them.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <immintrin.h>
#include <atomic>
#include <new>
#include <vector>

#include "exported.h"

__global__ void set(unsigned* to, unsigned value) { *to = value; }
__global__ void copy_word(unsigned* to, const unsigned* from) { *to = *from; }

// Of 512 bytes, so that eight are in a page.
constexpr unsigned small = 128;

// So that threads meet anywhere in what they do.
static void pause_below(Random& random, std::uint32_t limit) {
    for (auto wait = random.below(limit); wait > 0; --wait) _mm_pause();
}

// What the device has.
template <class T>
static T copied(const T* from) {
    T value;
    CHECK(cudaMemcpy(&value, from, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

// A thread that reads a word, which does not change, again and again.
class Reader {
public:
    explicit Reader(const unsigned* word) : word_(word), value_(load(word)), thread_(start(*this)) { turn(); }
    void operator()() {
        while (!over_) {
            wrong_ += load(word_) != value_;
            ++reads_;
            if (!plain) sched_yield();
        }
    }
    // Until it has begun to read and ended.
    void turn() const {
        for (const unsigned before = reads_; reads_ - before < 2;) sched_yield();
    }
    unsigned stop() {
        over_ = true;
        pthread_join(thread_, nullptr);
        return wrong_;
    }

private:
    const unsigned* word_;
    unsigned value_, wrong_ = 0;
    std::atomic<unsigned> reads_{0};
    std::atomic<bool> over_{false};
    pthread_t thread_;
};

// A thread uses a word alone, while another one reads a word of the same page.
struct Used {
    unsigned* word;
    unsigned* other;
    const Reader& reader;
    int from, to;  // of a pipe
};
// Each returns what must be the value.
static unsigned copy_over(const Used& used, unsigned value) {
    store(used.word, ~value);
    CHECK(cudaMemcpy(used.word, &value, sizeof value, cudaMemcpyHostToDevice));
    used.reader.turn();
    return copied(used.word);
}
static unsigned copy_out(const Used& used, unsigned value) {
    store(used.word, value);
    return copied(used.word);
}
static unsigned kernel_reads(const Used& used, unsigned value) {
    store(used.word, value);
    copy_word<<<1, 1>>>(used.other, used.word);
    return copied(used.other);
}
static unsigned kernel_writes(const Used& used, unsigned value) {
    set<<<1, 1>>>(used.word, value);
    CHECK(cudaDeviceSynchronize());
    return load(used.word);
}
static unsigned kernel_writes_unwaited(const Used& used, unsigned value) {
    set<<<1, 1>>>(used.word, value);
    return load(used.word);
}
static unsigned kernel_writes_event(const Used& used, unsigned value) {
    static cudaEvent_t event;
    if (event == nullptr) CHECK(cudaEventCreate(&event));
    set<<<1, 1>>>(used.word, value);
    CHECK(cudaEventRecord(event));
    CHECK(cudaEventSynchronize(event));
    return load(used.word);
}
static unsigned kernel_over(const Used& used, unsigned value) {
    store(used.word, ~value);
    set<<<1, 1>>>(used.word, value);
    CHECK(cudaStreamSynchronize(nullptr));
    used.reader.turn();
    return copied(used.word);
}
static unsigned written(const Used& used, unsigned value) {
    store(used.word, value);
    const unsigned copy = plain ? 0 : load(used.word);
    unsigned got = 0;
    if (write(used.to, plain ? used.word : &copy, 4) != 4 || read(used.from, &got, 4) != 4) say("no bytes\n");
    return got;
}
static unsigned read_over(const Used& used, unsigned value) {
    store(used.word, ~value);
    unsigned copy = 0;
    if (write(used.to, &value, 4) != 4 || read(used.from, plain ? used.word : &copy, 4) != 4) say("no bytes\n");
    if (!plain) store(used.word, copy);
    used.reader.turn();
    return copied(used.word);
}

static void use_beside(unsigned* word, const unsigned* beside) {
    int ends[2];
    if (pipe(ends) != 0) say("no pipe\n");
    Random random(5);
    Reader reader(beside);
    const Used used{word, Data::allocated(many), reader, ends[0], ends[1]};
    const auto count = [&](const char* what, unsigned (*use)(const Used&, unsigned)) {
        unsigned wrong = 0;
        for (unsigned round = 1; round <= 200; ++round) {
            if (round % 2 == 0) usleep(1);  // while the other one goes on alone
            pause_below(random, 4000);
            wrong += use(used, round) != round;
        }
        say("%s: %u wrong\n", what, wrong);
    };
    count("copied over", copy_over);
    count("copied out", copy_out);
    count("read by a kernel", kernel_reads);
    count("written by a kernel", kernel_writes);
    count("written by a kernel, event", kernel_writes_event);
    count("written by a kernel, not waited for", kernel_writes_unwaited);
    count("written over by a kernel", kernel_over);
    count("write", written);
    count("read", read_over);
    say("reader: %u wrong\n", reader.stop());
}

static void order(int, char**) {
    Data data = exported();
    use_beside(data.gpu + 200, data.gpu + 100);
}

// The word is another allocation's.
static void order_neighbours(int, char**) {
    unsigned *one = Data::allocated(small), *other = Data::allocated(small);
    CHECK(cudaMemset(one, 0, small * 4));
    export_to_others(one);
    use_beside(other + 3, one + 1);
}

// What comes and goes in the page of exported memory, where threads use allocations of their own.
static void neighbours_freed(int, char**) {
    std::atomic<unsigned> wrong{0};
    for (unsigned page = 0; page < 20; ++page) {
        unsigned *const kept = Data::allocated(small), *const beside = Data::allocated(small);
        CHECK(cudaMemcpy(beside + 1, &page, sizeof page, cudaMemcpyHostToDevice));
        export_to_others(kept);
        const auto work = [&](unsigned key) {
            Random random(key + page);
            for (unsigned round = 0; round < 150; ++round) {
                unsigned* const memory = Data::allocated(small);
                if (round % 50 == 49) export_to_others(memory);
                if (round % 8 == 7) {
                    store(memory + 3, key + round);
                    wrong += load(memory + 3) != key + round;
                    wrong += load(beside + 1) != page;
                }
                pause_below(random, round % 2 == 0 ? 100 : 400);
                CHECK(cudaFree(memory));
            }
        };
        auto a = [&] { work(1000000); };
        auto b = [&] { work(2000000); };
        for (const auto thread : {start(a), start(b)}) pthread_join(thread, nullptr);
        CHECK(cudaFree(kept));
        CHECK(cudaFree(beside));
    }
    say("%u wrong\n", wrong.load());
}

// Other memory in the place of what was exported, and was beside that.
static void marks(int, char**) {
    unsigned* all[64];
    for (auto& memory : all) memory = Data::allocated(small);
    unsigned* const last = Data::allocated(small);
    store(all[5], 1u);
    store(last, 2u);
    CHECK(cudaMemset(all[21], 9, small * 4));
    export_to_others(all[20]);
    unsigned wrong = load(all[21]) != 0x09090909;
    for (auto* const memory : all) CHECK(cudaFree(memory));
    for (unsigned round = 0; round < 3; ++round) {
        Data large(8 << 10);
        wrong += large.work(round) + large.check_all();
        CHECK(cudaMemset(large.gpu, 7, large.count * 4));
        for (unsigned i = 0; i < large.count; i += 1024) wrong += load(large.gpu + i) != 0x07070707;
        CHECK(cudaFree(large.gpu));
    }
    wrong += load(last) != 2;
    say("%u wrong\n", wrong);
}

// A thread reads a word, and counts in the next one, while another thread exports that memory or what is beside it.
static void exported_meanwhile(int, char**) {
    constexpr unsigned rounds = 200;
    unsigned *memory = nullptr, number = 0, counted = 0, wrong = 0;
    std::atomic<unsigned> begun{0}, done{0}, ended{0}, steps{0};
    auto work = [&] {
        Random random(3);
        for (unsigned round = 1; round <= rounds; ++round) {
            while (begun != round) sched_yield();
            for (counted = 0; done != round; ++steps) {
                pause_below(random, 100u << round % 4);
                wrong += load(memory + 3) != number;
                if (round % 3 == 0) store(memory + 4, ++counted);
            }
            ended = round;
        }
    };
    const auto await_step = [&] {
        for (const unsigned before = steps; steps == before;) sched_yield();
    };
    const pthread_t thread = start(work);
    for (unsigned round = 1; round <= rounds; ++round) {
        // A page of smaller ones, and sometimes one with addresses of its own.
        unsigned* all[16];
        for (auto& memory : all) memory = Data::allocated(small / 2);
        unsigned* const large = round % 16 == 0 ? Data::allocated(many) : nullptr;
        unsigned* const exported = large != nullptr ? large : all[0];
        memory = round % 4 == 0 ? exported : all[15];
        number = round + 7;
        CHECK(cudaMemset(memory + 4, 0, 4));
        CHECK(cudaMemcpy(memory + 3, &number, 4, cudaMemcpyHostToDevice));
        begun = round;
        await_step();
        export_to_others(exported);
        await_step();
        done = round;
        while (ended != round) sched_yield();
        wrong += copied(memory + 4) != counted;
        CHECK(cudaFree(large));
        for (auto* const memory : all) CHECK(cudaFree(memory));
    }
    pthread_join(thread, nullptr);
    say("%u wrong\n", wrong);
}

// Two threads export the same memory, or memory that shares its pages, and find what the CPU had stored there.
static void exported_by_two(int, char**) {
    constexpr unsigned rounds = 75;
    std::atomic<unsigned> begun{0}, done{0};
    unsigned* memory[2] = {};
    auto work = [&] {
        for (unsigned round = 1; round <= rounds; ++round) {
            while (begun != round) sched_yield();
            export_to_others(memory[1]);
            done = round;
        }
    };
    const pthread_t thread = start(work);
    unsigned wrong = 0;
    for (unsigned round = 1; round <= rounds; ++round) {
        const unsigned n = round % 8 == 0 ? many : 500 + round;
        memory[0] = Data::allocated(n);
        memory[1] = round % 2 == 0 ? memory[0] : Data::allocated(n);
        store(memory[0] + 9, round);
        store(memory[1] + n - 1, round + 1);
        begun = round;
        export_to_others(memory[0]);
        while (done != round) sched_yield();
        wrong += load(memory[0] + 9) != round;
        wrong += load(memory[1] + n - 1) != round + 1;
        for (unsigned i = 0; i < n && n != many; ++i) load(memory[1] + i);
        CHECK(cudaFree(memory[0]));
        if (memory[1] != memory[0]) CHECK(cudaFree(memory[1]));
    }
    pthread_join(thread, nullptr);
    say("%u wrong\n", wrong);
}

// Files are written from memory, and read to it, while another thread exports it.
static void files_meanwhile(int, char**) {
    constexpr unsigned rounds = 40, pieces = 10;
    constexpr std::size_t piece = 300000;
    std::atomic<unsigned> begun{0}, done{0};
    unsigned char* memory = nullptr;
    auto work = [&] {
        Random random(3);
        for (unsigned round = 1; round <= rounds; ++round) {
            while (begun != round) sched_yield();
            pause_below(random, 20000);
            export_to_others(memory);
            done = round;
        }
    };
    const pthread_t thread = start(work);
    const int file = memfd_create("file", 0);
    std::vector<unsigned char> bytes(piece * pieces);
    unsigned failed = 0, wrong = 0;
    for (unsigned round = 1; round <= rounds; ++round) {
        const auto expected = static_cast<unsigned char>(round);
        CHECK(cudaMalloc(&memory, piece * pieces));
        CHECK(cudaMemset(memory, expected, piece * pieces));
        for (std::size_t at = 0; at < piece * pieces; at += 65536) {
            wrong += load(reinterpret_cast<unsigned*>(memory + at)) != expected * 0x01010101u;
        }
        begun = round;
        for (std::size_t at = 0; at < piece * pieces; at += piece) {
            const bool writes = round % 2 != 0;
            auto* const other = plain ? memory + at : bytes.data() + at;
            if (!plain && writes) CHECK(cudaMemcpy(other, memory + at, piece, cudaMemcpyDeviceToHost));
            const auto offset = static_cast<off_t>(at);
            const auto moved = writes ? pwrite(file, other, piece, offset) : pread(file, other, piece, offset);
            failed += moved != static_cast<ssize_t>(piece);
            if (!plain && !writes) CHECK(cudaMemcpy(memory + at, other, piece, cudaMemcpyHostToDevice));
        }
        while (done != round) sched_yield();
        // A round that reads finds what the one before has written.
        const auto there = static_cast<unsigned char>(round - (round + 1) % 2);
        CHECK(cudaMemcpy(bytes.data(), memory, bytes.size(), cudaMemcpyDeviceToHost));
        for (const auto byte : bytes) wrong += byte != there;
        failed += pread(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size());
        for (const auto byte : bytes) wrong += byte != there;
        CHECK(cudaFree(memory));
    }
    pthread_join(thread, nullptr);
    close(file);
    say("%u failed, %u wrong\n", failed, wrong);
}

// Aligned stores of one process, of which a copy of another one sees all or nothing.
struct Meeting {
    std::atomic<unsigned> phase, stores;
    cudaIpcMemHandle_t handle;
};
static void await_stores(const Meeting& meeting) {
    for (const unsigned before = meeting.stores; meeting.stores - before < 4;) sched_yield();
}
template <class T>
static void store_in_phase(Meeting& meeting, unsigned phase, T* to, T value) {
    for (; meeting.phase == phase; ++meeting.stores) store(to, meeting.stores % 2 == 0 ? value : T{0});
}
static int storer(Meeting& meeting) {
    while (meeting.phase == 0) sched_yield();
    std::uint64_t* words = nullptr;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&words), meeting.handle, cudaIpcMemLazyEnablePeerAccess));
    auto* const halves = reinterpret_cast<std::uint32_t*>(words);
    store_in_phase<std::uint64_t>(meeting, 1, words + 50, 0x0001000000000001u);
    store_in_phase<std::uint32_t>(meeting, 2, halves + 201, 0x01000001u);
    store_in_phase<std::uint32_t>(meeting, 3, halves + 301, 0x11111111u);
    CHECK(cudaIpcCloseMemHandle(words));
    return 0;
}
static void whole_words(int, char**) {
    auto* const meeting = new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Meeting;
    const pid_t child = fork();
    if (child == 0) std::exit(storer(*meeting));
    std::uint64_t* words = nullptr;
    CHECK(cudaMalloc(&words, many * 4));
    CHECK(cudaMemset(words, 0, many * 4));
    CHECK(cudaIpcGetMemHandle(&meeting->handle, words));
    auto* const halves = reinterpret_cast<std::uint32_t*>(words);
    unsigned wrong = 0;
    meeting->phase = 1;
    await_stores(*meeting);
    for (unsigned round = 0; round < 20000; ++round) {
        const auto seen = copied(words + 50);
        wrong += seen != 0 && seen != 0x0001000000000001u;
    }
    say("of eight bytes: %u wrong\n", wrong);
    wrong = 0;
    meeting->phase = 2;
    await_stores(*meeting);
    for (unsigned round = 0; round < 20000; ++round) {
        const auto seen = copied(halves + 201);
        wrong += seen != 0 && seen != 0x01000001u;
    }
    say("of four bytes: %u wrong\n", wrong);
    // Both store.
    wrong = 0;
    meeting->phase = 3;
    await_stores(*meeting);
    for (unsigned round = 0; round < 1500; ++round) {
        store(halves + 301, 0x22u);
        const auto seen = copied(halves + 301);
        wrong += seen != 0 && seen != 0x22 && seen != 0x11111111u;
    }
    say("of both: %u wrong\n", wrong);
    meeting->phase = 4;
    int status = 0;
    waitpid(child, &status, 0);
    say("child %d\n", status);
}

// Memory of the first device, exported while the last one is current, which is reset then.
static void other_context(int, char**) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    unsigned* const memory = Data::allocated(many);
    CHECK(cudaMemset(memory, 1, many * 4));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(count - 1));
    CHECK(cudaFree(nullptr));
    export_to_others(memory);
    unsigned wrong = load(memory + 5) != 0x01010101;
    if (count > 1) CHECK(cudaDeviceReset());
    CHECK(cudaSetDevice(0));
    wrong += copied(memory + 5) != 0x01010101;
    wrong += load(memory + 5) != 0x01010101;
    store(memory + 5, 2u);
    wrong += copied(memory + 5) != 2;
    say("%u wrong\n", wrong);
}

// What was a graph's, and is others' now.
static void graph_gone(int, char**) {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned* array = nullptr;
    cudaGraph_t graph;
    cudaGraphExec_t runs;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&array, many * 4, stream));
    CHECK(cudaMemsetAsync(array, 1, many * 4, stream));
    CHECK(cudaFreeAsync(array, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&runs, graph, 0));
    CHECK(cudaGraphLaunch(runs, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(runs));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
    unsigned wrong = 0;
    for (const unsigned n : {small, small, small, many, many, 40000u}) {
        Data data(n);
        for (unsigned round = 0; round < 3; ++round) wrong += data.work(round);
    }
    CHECK(cudaMallocAsync(&array, many * 4, stream));
    CHECK(cudaStreamSynchronize(stream));
    Data data(many, array);
    wrong += data.work(1) + data.check_all();
    say("%u wrong\n", wrong);
}

// Small and larger memory with exported memory among it, of which tests/faults may make one block.
static void one_block(int, char**) {
    unsigned* all[40];
    for (auto& memory : all) memory = Data::allocated(small);
    Data large(75 << 10);
    CHECK(cudaMemset(all[21], 0, small * 4));
    export_to_others(all[20]);
    unsigned wrong = 0;
    store(all[21], 5u);
    store(all[0], 1u);
    for (unsigned round = 0; round < 3; ++round) {
        set<<<1, 1>>>(all[21], 15 + round);
        wrong += large.work(round);
        wrong += load(all[21]) != 15 + round;
        wrong += large.check_all();
        wrong += load(all[0]) != (round == 0 ? 1 : round - 1);
        store(all[0], round);
        store(all[21], 77 + round);
        wrong += copied(all[21]) != 77 + round;
    }
    say("%u wrong\n", wrong);
}

int main(int argc, char** argv) {
    static const Case cases[] = {{"order", order},
                                 {"order_neighbours", order_neighbours},
                                 {"neighbours_freed", neighbours_freed},
                                 {"marks", marks},
                                 {"exported_meanwhile", exported_meanwhile},
                                 {"exported_by_two", exported_by_two},
                                 {"files_meanwhile", files_meanwhile},
                                 {"whole_words", whole_words},
                                 {"other_context", other_context},
                                 {"graph_gone", graph_gone},
                                 {"one_block", one_block}};
    return run_case(cases, argc, argv);
}
