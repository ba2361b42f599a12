// SPDX-License-Identifier: MIT
// Copies between the program's own memory and the device, large enough to be staged: what a call says was copied must
// be there.
#include "tried.h"

#include <cstring>
#include <vector>

namespace {

unsigned char* device = nullptr;
constexpr std::size_t kMost = (std::size_t{5} << 19) + 777;
constexpr std::size_t kWidth = 1500, kPitch = 1536, kRows = kMost / kPitch;

void there_and_back(std::size_t bytes, unsigned seed, cudaStream_t stream, const char* what) {
    std::vector<unsigned char> from(bytes), to(bytes, 0xee);
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 11);
    const auto model = from;
    const bool there = stream == nullptr
                           ? TRIED(cudaMemcpy(device, from.data(), bytes, cudaMemcpyHostToDevice))
                           : TRIED(cudaMemcpyAsync(device, from.data(), bytes, cudaMemcpyHostToDevice, stream));
    std::memset(from.data(), 0, bytes);
    const bool back = stream == nullptr
                          ? TRIED(cudaMemcpy(to.data(), device, bytes, cudaMemcpyDeviceToHost))
                          : TRIED(cudaMemcpyAsync(to.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
    if (!there || !back) return;
    if (to != model) {
        ++wrong_arrays;
        std::printf("WRONG %s: %zu bytes\n", what, bytes);
    }
}

// The same in rows, which on the device lie apart.
void rows_there_and_back(unsigned seed, cudaStream_t stream, const char* what) {
    std::vector<unsigned char> from(kWidth * kRows), to(from.size(), 0xee);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>((i * 2654435761u + seed) >> 11);
    const auto model = from;
    const auto host_to_device = cudaMemcpyHostToDevice, device_to_host = cudaMemcpyDeviceToHost;
    const bool there =
        stream == nullptr
            ? TRIED(cudaMemcpy2D(device, kPitch, from.data(), kWidth, kWidth, kRows, host_to_device))
            : TRIED(cudaMemcpy2DAsync(device, kPitch, from.data(), kWidth, kWidth, kRows, host_to_device, stream));
    std::memset(from.data(), 0, from.size());
    const bool back =
        stream == nullptr
            ? TRIED(cudaMemcpy2D(to.data(), kWidth, device, kPitch, kWidth, kRows, device_to_host))
            : TRIED(cudaMemcpy2DAsync(to.data(), kWidth, device, kPitch, kWidth, kRows, device_to_host, stream));
    if (there && back && to != model) {
        ++wrong_arrays;
        std::printf("WRONG %s: %zu rows\n", what, kRows);
    }
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    cudaStream_t stream = nullptr;
    if (!TRIED(cudaMalloc(&device, kMost)) || !TRIED(cudaStreamCreate(&stream))) return verdict();
    for (unsigned round = 0; round < 3; ++round) {
        there_and_back(kMost, round, nullptr, "waiting");
        there_and_back(std::size_t{700} << 10, round + 10, nullptr, "waiting, small");
        there_and_back(kMost - round, round + 20, stream, "ordered");
        rows_there_and_back(round + 30, nullptr, "waiting, in rows");
        rows_there_and_back(round + 40, stream, "ordered, in rows");
    }
    TRIED(cudaStreamDestroy(stream));
    TRIED(cudaFree(device));
    return verdict();
}
