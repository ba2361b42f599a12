// SPDX-License-Identifier: MIT
// Many small objects that lie side by side, used one after the other and otherwise.
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "program.h"

namespace {

bool pool = false;  // memory in stream order

__global__ void advance_all(unsigned* const* objects, const unsigned* counts, unsigned n, unsigned key) {
    if (blockIdx.x >= n) return;
    for (unsigned i = threadIdx.x; i < counts[blockIdx.x]; i += blockDim.x) {
        objects[blockIdx.x][i] = objects[blockIdx.x][i] * 1664525u + key + i;
    }
}

// Objects of one to some thousand words, and what they must hold.
class Crowd {
public:
    explicit Crowd(unsigned n) : objects_(n), models_(n) {
        constexpr unsigned kCounts[] = {1, 4096, 1000, 25, 1024, 7000};
        CHECK(cudaMallocHost(&list_, n * sizeof *list_));
        CHECK(cudaMallocHost(&counts_, n * sizeof *counts_));
        for (unsigned i = 0; i < n; ++i) allocate(i, kCounts[i % std::size(kCounts)]);
    }
    ~Crowd() {
        for (unsigned i = 0; i < size(); ++i) release(i);
    }
    unsigned size() const { return static_cast<unsigned>(objects_.size()); }
    unsigned* operator[](unsigned i) const { return objects_[i]; }
    std::size_t bytes(unsigned i) const { return models_[i].size() * sizeof(unsigned); }
    std::vector<unsigned>& model(unsigned i) { return models_[i]; }

    void allocate(unsigned i, unsigned count) {
        CHECK(pool ? cudaMallocAsync(&objects_[i], count * sizeof(unsigned), nullptr)
                   : cudaMalloc(&objects_[i], count * sizeof(unsigned)));
        CHECK(cudaMemset(objects_[i], 0, count * sizeof(unsigned)));
        models_[i].assign(count, 0);
    }
    void release(unsigned i) {
        CHECK(pool ? cudaFreeAsync(objects_[i], nullptr) : cudaFree(objects_[i]));
        objects_[i] = nullptr;
        models_[i].clear();
    }
    // All words, from the CPU.
    void write(unsigned i, unsigned key) {
        auto& model = models_[i];
        std::iota(model.begin(), model.end(), key * 2654435761u + i);
        if (plain) {
            std::copy(model.begin(), model.end(), objects_[i]);
        } else {
            CHECK(cudaMemcpy(objects_[i], model.data(), bytes(i), cudaMemcpyHostToDevice));
        }
    }
    // Whether any word is wrong, seen from the CPU.
    unsigned wrong(unsigned i) const {
        const auto& model = models_[i];
        if (plain) return !std::equal(model.begin(), model.end(), objects_[i]);
        return wrong_on_device(i);
    }
    unsigned wrong_on_device(unsigned i) const {
        std::vector<unsigned> copy(models_[i].size());
        CHECK(cudaMemcpy(copy.data(), objects_[i], bytes(i), cudaMemcpyDeviceToHost));
        return copy != models_[i];
    }
    unsigned all_wrong() const {
        unsigned sum = 0;
        for (unsigned i = 0; i < size(); ++i) sum += wrong(i);
        return sum;
    }
    void launch(unsigned key) {
        for (unsigned i = 0; i < size(); ++i) {
            list_[i] = objects_[i];
            counts_[i] = static_cast<unsigned>(models_[i].size());
            for (unsigned k = 0; k < counts_[i]; ++k) models_[i][k] = models_[i][k] * 1664525u + key + k;
        }
        advance_all<<<size(), 64>>>(list_, counts_, size(), key);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }

private:
    std::vector<unsigned*> objects_;
    std::vector<std::vector<unsigned>> models_;
    unsigned** list_ = nullptr;
    unsigned* counts_ = nullptr;
};

std::vector<unsigned> in_order(unsigned n) {
    std::vector<unsigned> order(n);
    std::iota(order.begin(), order.end(), 0u);
    return order;
}

void rounds(const std::vector<unsigned>& order) {
    Crowd crowd(static_cast<unsigned>(order.size()));
    unsigned wrong = 0;
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i : order) crowd.write(i, round);
        crowd.launch(round);
        for (unsigned i : order) wrong += crowd.wrong(i);
        crowd.launch(round + 10);
        for (unsigned i : order) {
            wrong += crowd.wrong(i);
            if (i % 5 == round) crowd.write(i, round + 20);
        }
    }
    say("%u wrong\n", wrong + crowd.all_wrong());
}

void ascending(int, char**) { rounds(in_order(400)); }
void descending(int, char**) {
    auto order = in_order(400);
    std::reverse(order.begin(), order.end());
    rounds(order);
}
void shuffled(int, char**) {
    auto order = in_order(400);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    rounds(order);
}
// Two streams of objects, used in turn.
void in_turn(int, char**) {
    auto order = in_order(400);
    for (unsigned i = 0; i < 200; ++i) {
        order[2 * i] = i;
        order[2 * i + 1] = 200 + i;
    }
    rounds(order);
}

// What is written between freed objects must not reach what the device has there since.
void gaps(int, char**) {
    Crowd crowd(300);
    for (unsigned i = 0; i < crowd.size(); ++i) crowd.write(i, 1);
    for (unsigned i = 0; i < crowd.size(); i += 3) crowd.release(i);
    for (unsigned i = 0; i < crowd.size(); i += 3) crowd.allocate(i, 900);
    for (unsigned i = 1; i < crowd.size(); ++i) {
        if (i % 3 != 0) crowd.write(i, 2);
    }
    crowd.launch(3);
    unsigned wrong = 0;
    for (unsigned i = 0; i < crowd.size(); i += 3) wrong += crowd.wrong_on_device(i);
    say("%u wrong\n", wrong + crowd.all_wrong());
}

// Each object is freed as soon as it was used; those behind it were opened with it.
void freed_behind(int, char**) {
    Crowd crowd(300);
    for (unsigned i = 0; i < crowd.size(); ++i) crowd.write(i, 1);
    crowd.launch(2);
    unsigned wrong = 0;
    for (unsigned i = 0; i < crowd.size(); ++i) {
        wrong += crowd.wrong(i);
        crowd.release(i);
        if (i % 2 == 0) crowd.allocate(i, 64);
    }
    for (unsigned i = 0; i < crowd.size(); i += 2) crowd.write(i, 4);
    for (unsigned i = 0; i < crowd.size(); i += 2) wrong += crowd.wrong_on_device(i);
    for (unsigned i = 1; i < crowd.size(); i += 2) crowd.allocate(i, 1);
    say("%u wrong\n", wrong);
}

// Copies from and to the middle of what the CPU has written.
void copied(int, char**) {
    Crowd crowd(300);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 0; i < crowd.size(); ++i) crowd.write(i, round);
        for (unsigned i = 6; i + 6 < crowd.size(); i += 12) {
            wrong += crowd.wrong_on_device(i + 3);
            CHECK(cudaMemcpy(crowd[i], crowd[i + 6], crowd.bytes(i), cudaMemcpyDeviceToDevice));
            crowd.model(i) = crowd.model(i + 6);
            CHECK(cudaMemset(crowd[i + 1], 0, crowd.bytes(i + 1)));
            std::fill(crowd.model(i + 1).begin(), crowd.model(i + 1).end(), 0u);
        }
        wrong += crowd.all_wrong();
        crowd.launch(round);
    }
    say("%u wrong\n", wrong + crowd.all_wrong());
}

// Two threads go through the same objects from both ends, and a third one frees and allocates others between them.
void threads(int, char**) {
    Crowd crowd(400), others(40);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 6; ++round) {
        unsigned low_wrong = 0, high_wrong = 0;
        auto low = [&] {
            for (unsigned i = 0; i < 200; ++i) crowd.write(i, round);
            for (unsigned i = 0; i < 200; ++i) low_wrong += crowd.wrong(i);
        };
        auto high = [&] {
            for (unsigned i = 400; i-- > 200;) crowd.write(i, round);
            for (unsigned i = 400; i-- > 200;) high_wrong += crowd.wrong(i);
        };
        auto renew = [&] {
            for (unsigned i = 0; i < others.size(); ++i) {
                others.release(i);
                others.allocate(i, 500);
                others.write(i, round);
            }
        };
        const pthread_t one = start(low), two = start(high), three = start(renew);
        for (pthread_t thread : {one, two, three}) pthread_join(thread, nullptr);
        crowd.launch(round);
        wrong += low_wrong + high_wrong + others.all_wrong();
    }
    say("%u wrong\n", wrong + crowd.all_wrong());
}

// A host function uses an object in the middle, before and after its neighbours are opened.
void host_function(int, char**) {
    Crowd crowd(200);
    struct Job {
        unsigned* object;
        unsigned key;
    } job{crowd[100], 0};
    for (unsigned round = 0; round < 4; ++round) {
        if (round % 2 == 0) {
            for (unsigned i = 0; i < crowd.size(); ++i) crowd.write(i, round);
        }
        job.key = 77 + round;
        crowd.model(100)[0] = job.key;
        if (plain) {
            CHECK(cudaLaunchHostFunc(
                nullptr, [](void* data) { static_cast<Job*>(data)->object[0] = static_cast<Job*>(data)->key; }, &job));
        } else {
            CHECK(cudaMemcpyAsync(job.object, &job.key, sizeof job.key, cudaMemcpyHostToDevice));
        }
        crowd.launch(round);
        say("%u wrong\n", crowd.all_wrong());
    }
}

}  // namespace

int main(int argc, char** argv) {
    pool = argc > 3 && std::strcmp(argv[3], "pool") == 0;
    const Case cases[] = {{"ascending", ascending},
                          {"descending", descending},
                          {"shuffled", shuffled},
                          {"in_turn", in_turn},
                          {"gaps", gaps},
                          {"freed_behind", freed_behind},
                          {"copied", copied},
                          {"threads", threads},
                          {"host_function", host_function}};
    return run_case(cases, argc, argv);
}
