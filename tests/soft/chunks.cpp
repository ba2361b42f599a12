// SPDX-License-Identifier: MIT
// Where small allocations lie: several in one mapping of 2 MiB, which the driver tells of, and which no allocation
// leaves; larger ones have mappings of their own.
#include <thread>
#include <vector>

#include "driver.h"

struct Driver {
    DRIVER_FUNCTION(cuPointerGetAttribute, 4000)
};

struct Mapping {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
};

int main() {
    constexpr std::size_t kChunk = std::size_t{2} << 20;
    const Driver driver;
    const auto mapping_of = [&](const void* at) {
        Mapping mapping;
        const auto address = reinterpret_cast<CUdeviceptr>(at);
        EXPECT(driver.cuPointerGetAttribute(&mapping.base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address) == 0);
        EXPECT(driver.cuPointerGetAttribute(&mapping.bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address) == 0);
        return mapping;
    };
    std::vector<char*> all;
    unsigned shared = 0;
    for (const std::size_t bytes : {1, 100, 512, 4096, 5000, 100'000, 1'000'000, 1'048'676, 1'500'000, 2'097'000}) {
        CUdeviceptr before = 0;
        for (int i = 0; i < 20; ++i) {
            char* p = nullptr;
            CUDA(cudaMalloc(&p, bytes));
            all.push_back(p);
            const auto mapping = mapping_of(p);
            const auto address = reinterpret_cast<CUdeviceptr>(p);
            EXPECT(address % 256 == 0 && mapping.base % kChunk == 0 && mapping.bytes == kChunk);
            EXPECT(address >= mapping.base && address + bytes <= mapping.base + kChunk);
            shared += mapping.base == before;
            before = mapping.base;
        }
    }
    EXPECT(shared > 90);
    for (const std::size_t bytes : {kChunk, kChunk + 100, 3 * kChunk}) {
        char* p = nullptr;
        CUDA(cudaMalloc(&p, bytes));
        all.push_back(p);
        const auto mapping = mapping_of(p);
        EXPECT(mapping.base == reinterpret_cast<CUdeviceptr>(p) &&
               mapping.bytes == (bytes + kChunk - 1) / kChunk * kChunk);
    }
    for (char* p : all) CUDA(cudaFree(p));
    // Each of these fills a chunk, which its thread must not lose to another one before it has its part.
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([] {
            for (int round = 0; round < 2000; ++round) {
                char* p = nullptr;
                CUDA(cudaMalloc(&p, 1'500'000));
                CUDA(cudaFree(p));
            }
        });
    for (std::thread& thread : threads) thread.join();
    std::printf("chunks: ok\n");
}
