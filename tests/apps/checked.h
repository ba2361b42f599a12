// SPDX-License-Identifier: MIT
// An object with a plain array beside it that says what the object must hold, for programs that change objects in many
// ways. Every way changes both; what the CPU reads is compared.
#pragma once

#include <vector>

#include "app.h"

__global__ void stir(unsigned char* data, std::size_t n, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = static_cast<unsigned char>(data[i] * 5 + key + i);
}

struct Checked {
    Object<unsigned char> object;
    std::vector<unsigned char> model;
    std::size_t wrong = 0;
    Checksum checksum;

    explicit Checked(std::size_t n) : object(allocate<unsigned char>(n)), model(n) {
        // Memory that nobody has written holds anything at all; comparing needs a value.
        CHECK(cudaMemset(object.gpu, 0xee, n));
        for (unsigned char& m : model) m = 0xee;
    }

    std::size_t size() const { return model.size(); }
    unsigned char* gpu(std::size_t offset = 0) const { return object.gpu + offset; }

    void cpu_write(std::size_t first, std::size_t n, unsigned seed) {
        CHECK(cudaDeviceSynchronize());
        for (std::size_t i = first; i < first + n; ++i) {
            object[i] = model[i] = static_cast<unsigned char>(seed + i * (seed | 1));
        }
        to_gpu(object, first, n);
    }
    void gpu_write(std::size_t first, std::size_t n, unsigned key) {
        if (n == 0) return;
        stir<<<blocks_for(n, 128), 128>>>(object.gpu + first, n, key);
        CHECK(cudaGetLastError());
        for (std::size_t i = 0; i < n; ++i) {
            model[first + i] = static_cast<unsigned char>(model[first + i] * 5 + key + i);
        }
    }
    void cpu_read(std::size_t first, std::size_t n) {
        CHECK(cudaDeviceSynchronize());
        to_cpu(object, first, n);
        for (std::size_t i = first; i < first + n; ++i) wrong += object[i] != model[i];
        checksum.add(object.cpu + first, n);
    }
    std::size_t finish(Checksum& total) {
        cpu_read(0, size());
        total.add(checksum.value());
        release(object);
        return wrong;
    }
};
