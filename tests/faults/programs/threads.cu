// SPDX-License-Identifier: MIT
// Several threads, each with arrays and a stream of its own, and one array that all of them read.
#include "tried.h"

#include <memory>
#include <thread>

namespace {

constexpr std::size_t kWords = 6007;
constexpr unsigned kThreads = 3, kRounds = 3;

void work(Array& own, Array& other, const Array& common, unsigned seed) {
    cudaStream_t stream = nullptr;
    if (!TRIED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) return;
    own.allocate();
    other.allocate();
    if (own.data != nullptr) TRIED(cudaDeviceSynchronize());
    for (unsigned round = 0; round < kRounds; ++round) {
        own.write(round * 500, 4000, seed + round, 1 + round);
        launched(own, common, 3 + round, stream);
        launched(other, own, 5 + round, stream);
        other.check("in a thread", 0, kWords, 3);
        if (round == 1 && other.release()) {
            other.allocate();
            if (other.data != nullptr) TRIED(cudaDeviceSynchronize());
        }
        common.check("in a thread", seed % 100, 3000, 17);
    }
    if (!TRIED(cudaStreamSynchronize(stream))) TRIED(cudaDeviceSynchronize());
    TRIED(cudaStreamDestroy(stream));
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array common("common", kWords);
    if (!common.allocate()) return verdict();
    common.write(0, kWords, 7);
    Array first("first", kWords);
    first.allocate();
    launched(common, first, 3);
    TRIED(cudaDeviceSynchronize());

    std::vector<std::unique_ptr<Array>> arrays;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
        arrays.push_back(std::make_unique<Array>("own", kWords));
        arrays.push_back(std::make_unique<Array>("other", kWords));
        threads.emplace_back(work, std::ref(*arrays[2 * i]), std::ref(*arrays[2 * i + 1]), std::ref(common), 1000 * i);
    }
    for (auto& thread : threads) thread.join();
    for (auto& array : arrays) {
        array->finish();
        array->release();
    }
    common.finish();
    return verdict();
}
