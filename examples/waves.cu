// SPDX-License-Identifier: MIT
// A wave that spreads through a part of a large model of the ground, and what receivers at the surface hear: the
// program that docs/report.md makes faster. -DVERSION=1 copies far too much, 2 less, 3 what is needed; all print the
// same.
//
//   nvcc -g -O2 -cudart shared -DVERSION=1 -o waves examples/waves.cu
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#ifndef VERSION
#define VERSION 1
#endif

#define CHECK(call)                                                                                   \
    do {                                                                                              \
        const cudaError_t error = (call);                                                             \
        if (error != cudaSuccess) std::exit(std::fprintf(stderr, "%s\n", cudaGetErrorString(error))); \
    } while (0)

constexpr int kModel = 2048, kWindow = 128, kSteps = 60;
constexpr std::size_t kCells = std::size_t{kWindow} * kWindow;
constexpr std::size_t kModelBytes = sizeof(float) * kModel * kModel, kFieldBytes = sizeof(float) * kCells;

// The window lies in the middle of the model.
__global__ void step(const float* model, const float* now, const float* before, float* next) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= kWindow - 1 || y >= kWindow - 1) return;
    const int i = y * kWindow + x, corner = (kModel - kWindow) / 2;
    const float speed = model[(corner + y) * kModel + corner + x];
    const float around = now[i - 1] + now[i + 1] + now[i - kWindow] + now[i + kWindow] - 4 * now[i];
    next[i] = 2 * now[i] - before[i] + speed * around;
}

__global__ void introduce(float* field, float value) { field[8 * kWindow + kWindow / 2] += value; }

static void launch_step(const float* model, float** fields, float value) {
    const dim3 block(16, 16), grid(kWindow / 16, kWindow / 16);
    introduce<<<1, 1>>>(fields[1], value);
    step<<<grid, block>>>(model, fields[1], fields[0], fields[2]);
    CHECK(cudaGetLastError());
}

int main() {
    std::vector<float> model(std::size_t{kModel} * kModel);
    for (std::size_t i = 0; i < model.size(); ++i) model[i] = 0.1f + 0.3f * static_cast<float>(i % 97) / 97;
    std::vector<float> heard;
    float* on_device[3];
    for (float*& field : on_device) {
        CHECK(cudaMalloc(&field, kFieldBytes));
        CHECK(cudaMemset(field, 0, kFieldBytes));
    }
    float* model_on_device = nullptr;
#if VERSION > 1
    CHECK(cudaMalloc(&model_on_device, kModelBytes));
    CHECK(cudaMemcpy(model_on_device, model.data(), kModelBytes, cudaMemcpyHostToDevice));
#endif
#if VERSION < 3
    std::vector<float> field(kCells);
#else
    float* row = nullptr;
    CHECK(cudaMallocHost(&row, kWindow * sizeof(float)));
#endif
    for (int t = 0; t < kSteps; ++t) {
        const float value = 1.0f / static_cast<float>(t + 1);
#if VERSION == 1
        CHECK(cudaMalloc(&model_on_device, kModelBytes));
        CHECK(cudaMemcpy(model_on_device, model.data(), kModelBytes, cudaMemcpyHostToDevice));
#endif
        launch_step(model_on_device, on_device, value);
#if VERSION < 3
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(field.data(), on_device[2], kFieldBytes, cudaMemcpyDeviceToHost));
        heard.insert(heard.end(), field.begin() + kWindow, field.begin() + 2 * kWindow);
        CHECK(cudaMemcpy(on_device[2], field.data(), kFieldBytes, cudaMemcpyHostToDevice));
#else
        CHECK(cudaMemcpy(row, on_device[2] + kWindow, kWindow * sizeof(float), cudaMemcpyDeviceToHost));
        heard.insert(heard.end(), row, row + kWindow);
#endif
#if VERSION == 1
        CHECK(cudaFree(model_on_device));
#endif
        float* const oldest = on_device[0];
        on_device[0] = on_device[1];
        on_device[1] = on_device[2];
        on_device[2] = oldest;
    }
    double energy = 0;
    for (const float value : heard) energy += static_cast<double>(value) * value;
    std::printf("%zu values heard, energy %.9e\n", heard.size(), energy);
    return 0;
}
