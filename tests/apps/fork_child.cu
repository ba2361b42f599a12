// SPDX-License-Identifier: MIT
// fork after CUDA has been used: the child works on its own memory and leaves with _exit, the parent goes on with CUDA.
// Then a child that runs another program, and one that ends by exit, with all its handlers.
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "app.h"

__global__ void advance(unsigned* data, std::size_t n) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < n) data[i] = data[i] * 16807u + 7;
}

// What the child says comes back through a pipe, so that the order of the output is always the same.
static int ask_child(char* answer, std::size_t size, void (*work)(int)) {
    int ends[2];
    if (pipe(ends) != 0) return -1;
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        work(ends[1]);
        _exit(17);
    }
    close(ends[1]);
    std::size_t got = 0;
    for (ssize_t r; got + 1 < size && (r = read(ends[0], answer + got, size - 1 - got)) > 0;) {
        got += static_cast<std::size_t>(r);
    }
    answer[got] = 0;
    close(ends[0]);
    int status = 0;
    if (waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static const char* first_line(char* text) {
    text[std::strcspn(text, "\n")] = 0;
    return text[0] != 0 ? text : "nothing";
}

static void count_bytes(int out) {
    unsigned char* memory = static_cast<unsigned char*>(std::malloc(1 << 20));
    std::memset(memory, 3, 1 << 20);
    Checksum checksum;
    checksum.add(memory, 1 << 20);
    char text[64];
    const int length =
        std::snprintf(text, sizeof text, "child %016llx", static_cast<unsigned long long>(checksum.value()));
    if (write(out, text, static_cast<std::size_t>(length)) != length) _exit(9);
    std::free(memory);
}

static void run_program(int out) {
    dup2(out, 1);
    execl("/bin/sh", "sh", "-c", "echo from a shell", static_cast<char*>(nullptr));
}

static void end_by_exit(int) { std::exit(5); }

int main(int argc, char** argv) {
    const std::size_t n = size_argument(argc, argv, 12007);
    Object<unsigned> data = allocate<unsigned>(n);
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<unsigned>(i * 7);
    to_gpu(data);

    void (*const works[])(int) = {count_bytes, run_program, end_by_exit};
    Checksum checksum;
    for (int w = 0; w < 3; ++w) {
        advance<<<blocks_for(n, 128), 128>>>(data.gpu, n);  // may still run when the child is made
        CHECK(cudaGetLastError());
        char answer[128];
        const int status = ask_child(answer, sizeof answer, works[w]);
        std::printf("fork_child %d status=%d says=%s\n", w, status, first_line(answer));
        CHECK(cudaDeviceSynchronize());
        to_cpu(data);
        checksum.add(data.cpu, n * sizeof(unsigned));
        for (std::size_t i = 0; i < n; i += 5) data[i] += static_cast<unsigned>(w);
        to_gpu(data);
    }
    checksum.print();
    release(data);
    return 0;
}
