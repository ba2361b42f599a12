// SPDX-License-Identifier: MIT
// Two threads make the program's first calls of the driver, one of them SPINS later than the other. Linked with
// libcuda, whose functions are doors from the start. Run as `first_calls SPINS`. Exit status 1: the second thread was
// given another function than later ones are.
#include <cuda.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace {

void* allocation_function() {
    void* found = nullptr;
    return cuGetProcAddress("cuMemAlloc", &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS
               ? found
               : nullptr;
}

}  // namespace

int main(int, char** arguments) {
    const int spins = std::atoi(arguments[1]);
    std::atomic<bool> there{false}, begin{false};
    void* found = nullptr;
    std::thread second([&] {
        there = true;
        while (!begin) {
        }
        for (int i = 0; i < spins; ++i) {
            __builtin_ia32_pause();
        }
        found = allocation_function();
    });
    while (!there) {
    }
    begin = true;
    cuInit(0);
    second.join();
    return found != nullptr && found == allocation_function() ? 0 : 1;
}
