// SPDX-License-Identifier: MIT
// What the parts of separate.cu declare to each other.
#pragma once

#include "check.h"

struct Shape {
    __device__ virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    __device__ explicit Square(int s) : side(s) {}
    __device__ int area() const override;  // in the library: the virtual table is there
};

typedef int Function(int);

// In separate_part.cu.
extern __device__ int scaled(int x);
extern __device__ int table[];   // 4
extern __device__ int plane[2][3];
extern __constant__ int weights[4];
extern __managed__ int shared_with_host;
extern __device__ Function* functions[3];  // of all three files
extern __device__ int from_dynamic_shared(int at);
void part(int* results);  // runs kernels of that file

// In separate_library.cu.
extern __device__ int helped(int x);
extern __device__ int own(int x);
extern __device__ Shape* make(void* room, int side);
extern __device__ int* allocated(int value);

// In every file that uses them: one function, one variable.
inline __device__ __noinline__ int next_number() {
    static __device__ int last = 100;
    return atomicAdd(&last, 1);
}
template <class T>
struct Counter {
    static __device__ __noinline__ T add(T x) {
        static __device__ T total = 5;
        return atomicAdd(&total, x);
    }
};
template <class T>
__global__ void fill(T* out, T value) {
    __shared__ T room[32];
    room[threadIdx.x] = value + static_cast<T>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = room[31 - threadIdx.x];
}
