// SPDX-License-Identifier: MIT
// Reads a file straight into device memory, computes, and writes the result straight from there: no host buffer. CUDA
// does not allow that: read() fails with "Bad address". Under LD_PRELOAD=libhpe.so it is right.
//
// Usage: file_io INPUT OUTPUT
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

__global__ void upper(char* text, size_t n) {
    const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    if (i < n && text[i] >= 'a' && text[i] <= 'z') text[i] -= 'a' - 'A';
}

int main(int, char** argv) {
    const int in = open(argv[1], O_RDONLY);
    const int out = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    struct stat status;
    if (fstat(in, &status) != 0) return 1;
    const size_t n = status.st_size;
    char* text;
    cudaMalloc(&text, n);

    if (read(in, text, n) != status.st_size) {
        perror("read");
        return 1;
    }
    upper<<<static_cast<unsigned>((n + 255) / 256), 256>>>(text, n);
    if (write(out, text, n) != status.st_size) {
        perror("write");
        return 1;
    }

    std::printf("%zu bytes, starting with \"%.32s\"\n", n, text);
    cudaFree(text);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}
