// SPDX-License-Identifier: MIT
// The third file of separate.cu, which one of its builds takes from a static library.
#include <new>

#include "separate.h"

static __device__ int hidden = 33;
static __device__ __noinline__ int twin(int x) { return x + hidden; }

__device__ int own(int x) { return twin(x); }
__device__ int helped(int x) { return scaled(x) + plane[1][2]; }
__device__ int increased(int x) { return x + 1; }

__device__ int Square::area() const { return side * side; }
__device__ Shape* make(void* room, int side) { return new (room) Square(side); }
__device__ int* allocated(int value) {
    int* const p = static_cast<int*>(malloc(sizeof *p));
    if (p != nullptr) *p = value;
    return p;
}
