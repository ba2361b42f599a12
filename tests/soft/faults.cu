// SPDX-License-Identifier: MIT
// Accesses outside of what there is, in every space, misaligned ones, and use after free: run one at a time by name.
// faults.py knows from the names which error each must give, and from the marks which line must be named.
#include <cstdint>
#include <cstring>

#include "check.h"

__constant__ int table[8];
__device__ int variable[8];

__global__ void illegal_global_after(int* p, int n) { p[n + threadIdx.x] = 1; }
__global__ void illegal_global_before(int* p, int n) { n += p[threadIdx.x - 1]; p[0] = n; }
__global__ void illegal_global_null(int* p, int n) { p[threadIdx.x] = n; }
__global__ void illegal_global_one_lane(int* p, int n) { p[threadIdx.x == 13 ? n : 0] = n; }
__global__ void illegal_global_straddles(char* p, int n) { *(int2*)(p + n * 4 - 4 + 4 * (n & 1)) = make_int2(1, 2); }
__global__ void illegal_global_variable(int* p, int n) { p[0] = variable[8 + threadIdx.x + n - n]; }
__global__ void illegal_global_atomic(int* p, int n) { atomicAdd(p + n, 1); }
__global__ void illegal_global_freed(int* p, int n) { p[threadIdx.x % n] = 2; }
__global__ void illegal_constant_read(int* p, int n) { p[0] = table[n]; }
__global__ void illegal_shared_static(int* p, int n) {
    __shared__ int s[16];
    s[n + threadIdx.x] = n;  // illegal_shared_static
    __syncthreads();
    p[0] = s[n & 15];
}
__global__ void illegal_shared_dynamic(int* p, int n) {
    extern __shared__ int d[];
    p[0] = d[n + 16];  // illegal_shared_dynamic
}
__global__ void illegal_shared_atomic(int* p, int n) {
    __shared__ int s[16];
    atomicAdd(&s[n + threadIdx.x], 1);  // illegal_shared_atomic
    p[0] = s[0];
}
__global__ void illegal_local(int* p, int n) {
    int a[16];
    for (int i = 0; i < 16; i++) a[i] = p[i & 3];
    a[n + threadIdx.x] = 7;  // illegal_local
    for (int i = 0; i < 16; i++) p[0] += a[i];
}
__device__ __noinline__ int deep(int n) { return n < 2 ? n : deep(n - 1) + deep(n - 2); }
// With a stack that grows, what lies above the function's own part of it is nobody's.
__global__ void illegal_local_stack(int* p, int n) {
    int a[16];
    for (int i = 0; i < 16; i++) a[i] = p[i & 3];
    a[n] = deep(3);  // illegal_local_stack
    for (int i = 0; i < 16; i++) p[0] += a[i];
}
struct Big {
    int v[16];
};
__global__ void illegal_param(Big b, int* p, int n) {
    p[0] = b.v[n * 4];  // illegal_param
}
__global__ void illegal_generic_shared(int* p, int n) {
    __shared__ int s[16];
    int* volatile keep = s;
    s[0] = 1;
    keep[n] = 3;  // illegal_generic_shared
    p[0] = s[1];
}
__global__ void illegal_generic_local(int* p, int n) {
    int a[16];
    int* volatile keep = a;
    keep[n] = 3;  // illegal_generic_local
    p[0] = a[3];
}
__global__ void illegal_generic_nothing(int* p, int n) {
    *(int*)(0x123456789abcull + n * 4) = 3;  // illegal_generic_nothing
    p[0] = 1;
}

__global__ void misaligned_global(char* p, int n) { *(int*)(p + (n & 1) + 2) = 1; }
__global__ void misaligned_global_vector(char* p, int n) { *(int4*)(p + 8 + (n & 1)) = make_int4(n, n, n, n); }
__global__ void misaligned_global_atomic(char* p, int n) { atomicAdd((int*)(p + 2 + (n & 1)), 1); }
__global__ void misaligned_constant(int* p, int n) { p[0] = *(const int*)((const char*)table + (n & 1) + 1); }
__global__ void misaligned_shared(int* p, int n) {
    __shared__ int s[16];
    s[0] = n;
    *(int*)((char*)s + 2 + (n & 1)) = 4;  // misaligned_shared
    p[0] = s[0];
}
__global__ void misaligned_local(int* p, int n) {
    int a[16];
    for (int i = 0; i < 16; i++) a[i] = p[i & 3];
    *(int*)((char*)a + 2 + (n & 1)) = 4;  // misaligned_local
    for (int i = 0; i < 16; i++) p[0] += a[i];
}
__global__ void misaligned_param(Big b, int* p, int n) {
    p[0] = *(const int*)((const char*)b.v + 2 + n / 16);  // misaligned_param
}
__global__ void misaligned_generic(int* p, int n) {
    __shared__ int s[16];
    char* volatile keep = (char*)s;
    *(int*)(keep + 2 + (n & 1)) = 4;  // misaligned_generic
    p[0] = s[0];
}

int main(int argc, char** argv) {
    constexpr int n = 16;
    int* p = nullptr;
    CUDA(cudaMalloc(&p, n * sizeof(int)));
    CUDA(cudaMemset(p, 0, n * sizeof(int)));
    const char* name = argc > 1 ? argv[1] : "";
    bool known = false;
#define RUN(kernel, ...) \
    if (std::strcmp(name, #kernel) == 0) kernel<<<1, 32, 64>>>(__VA_ARGS__), known = true
    RUN(illegal_global_after, p, n);
    RUN(illegal_global_before, p, n);
    RUN(illegal_global_null, nullptr, n);
    RUN(illegal_global_one_lane, p, n);
    RUN(illegal_global_straddles, (char*)p + 4, n - 1);
    RUN(illegal_global_variable, p, n);
    RUN(illegal_global_atomic, p, n);
    if (std::strcmp(name, "illegal_global_freed") == 0) CUDA(cudaFree(p));
    RUN(illegal_global_freed, p, n);
    RUN(illegal_constant_read, p, n);
    RUN(illegal_shared_static, p, n * 2);
    RUN(illegal_shared_dynamic, p, n);
    RUN(illegal_shared_atomic, p, n * 2);
    RUN(illegal_local, p, n);
    RUN(illegal_local_stack, p, n * 4);
    RUN(illegal_param, Big{}, p, n * 4);
    RUN(illegal_generic_shared, p, n * 4);
    RUN(illegal_generic_local, p, n * 4);
    RUN(illegal_generic_nothing, p, n);
    RUN(misaligned_global, (char*)p, n);
    RUN(misaligned_global_vector, (char*)p, n);
    RUN(misaligned_global_atomic, (char*)p, n);
    RUN(misaligned_constant, p, n);
    RUN(misaligned_shared, p, n);
    RUN(misaligned_local, p, n);
    RUN(misaligned_param, Big{}, p, n);
    RUN(misaligned_generic, p, n);
    EXPECT(known);
    CUDA(cudaGetLastError());
    std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}
