// SPDX-License-Identifier: MIT
// Random calls of libc that read or write memory: each is made twice, with an array that kernels use and with a plain
// array, on a file, pipe or socket each, and must do the same: result, errno, bytes, offset and what is left to read.
// Kernels and CPU accesses come in between, of this thread or of others. With io_faults preloaded behind libhpe some
// system calls are cut short or fail.
//
// Arguments: seed, operations, bytes of the largest array. Prints the first difference, or how many calls were made.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string>
#include <vector>

#include "../apps/app.h"

namespace {

using Byte = unsigned char;

__global__ void mix(Byte* data, std::size_t bytes, unsigned key) {
    const std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
    if (i < bytes) data[i] = static_cast<Byte>(data[i] * 5 + key + i / 251);
}

struct Array {
    Byte* gpu = nullptr;
    std::vector<Byte> model;

    explicit Array(std::size_t bytes) : model(bytes) {
        CHECK(cudaMalloc(&gpu, bytes));
        CHECK(cudaMemset(gpu, 0, bytes));
        CHECK(cudaDeviceSynchronize());
    }
    void launch(unsigned key) {
        mix<<<static_cast<unsigned>((model.size() + 255) / 256), 256>>>(gpu, model.size(), key);
        CHECK(cudaGetLastError());
        for (std::size_t i = 0; i < model.size(); ++i) model[i] = static_cast<Byte>(model[i] * 5 + key + i / 251);
    }
};

// Descriptor and stream, once for the array that kernels use, once for the plain one.
struct Twin {
    int in[2], out[2];  // [0]: for calls with the object
    FILE* stream[2] = {nullptr, nullptr};
    bool regular = false;
};

Random* dice = nullptr;
std::size_t up_to(std::size_t limit) {
    const auto exponent = dice->below(32);
    const auto most = std::min(limit, std::size_t{1} << (exponent % 23));
    return most == 0 ? 0 : (static_cast<std::size_t>(dice->next()) % (most + 1));
}

[[noreturn]] void differ(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    std::printf("\n");
    std::exit(1);
}

Twin file() {
    Twin twin;
    twin.regular = true;
    std::vector<Byte> content(up_to(4 << 20) + 10);
    for (Byte& b : content) b = static_cast<Byte>(dice->next());
    const int flags = dice->below(5) == 0 ? O_APPEND : 0;
    for (int side = 0; side < 2; ++side) {
        char path[] = "io-XXXXXX";
        const int made = mkstemp(path);
        if (write(made, content.data(), content.size()) != static_cast<ssize_t>(content.size())) std::exit(98);
        twin.in[side] = twin.out[side] = open(path, O_RDWR | flags);
        unlink(path);
        close(made);
        twin.stream[side] = fdopen(dup(twin.in[side]), "r+");
    }
    return twin;
}
Twin pipe_or_socket() {
    Twin twin;
    const auto kind = dice->below(3);
    for (int side = 0; side < 2; ++side) {
        int ends[2];
        const int error = kind == 0
                              ? pipe2(ends, O_NONBLOCK)
                              : socketpair(AF_UNIX, (kind == 1 ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK, 0, ends);
        if (error != 0) std::exit(97);
        twin.in[side] = ends[0];
        twin.out[side] = ends[1];
    }
    return twin;
}

using Arm = void (*)(unsigned, int, int);
Arm arm = nullptr;

struct Part {
    std::size_t array, offset, bytes;
    bool ordinary;
};

class Run {
public:
    explicit Run(std::size_t largest) {
        for (std::size_t bytes : {std::size_t{100}, std::size_t{70000}, largest / 3 + 1, largest}) {
            arrays_.emplace_back(bytes);
        }
        for (int i = 0; i < 3; ++i) twins_.push_back(file());
        for (int i = 0; i < 3; ++i) twins_.push_back(pipe_or_socket());
    }

    void step() {
        const auto what = dice->below(100);
        if (what < 12) {
            arrays_[dice->below(4)].launch(dice->next());
        } else if (what < 20) {
            touch();
        } else if (what < 23) {
            Twin& twin = twins_[dice->below(3)];
            const auto to = static_cast<off_t>(up_to(6 << 20));
            for (int side = 0; side < 2; ++side) lseek(twin.in[side], to, SEEK_SET);
        } else if (what < 35) {
            items();
        } else {
            call();
        }
    }
    void check_all() {
        CHECK(cudaDeviceSynchronize());
        for (const Array& a : arrays_) compare(a, 0, a.model.size(), "at the end");
        for (const Twin& t : twins_) compare_files(t);
    }

private:
    void touch() {
        Array& a = arrays_[dice->below(4)];
        const auto at = dice->below(static_cast<std::uint32_t>(a.model.size()));
        if (a.gpu[at] != a.model[at])
            differ("byte %u of %zu is %d, not %d", at, a.model.size(), a.gpu[at], a.model[at]);
        a.gpu[at] = a.model[at] = static_cast<Byte>(dice->next());
    }
    void compare(const Array& a, std::size_t offset, std::size_t bytes, const char* when) {
        if (std::memcmp(a.gpu + offset, a.model.data() + offset, bytes) == 0) return;
        for (std::size_t i = offset;; ++i) {
            if (a.gpu[i] != a.model[i])
                differ("byte %zu of %zu is %d, not %d, %s", i, a.model.size(), a.gpu[i], a.model[i], when);
        }
    }
    void compare_files(const Twin& t) {
        if (!t.regular) return;
        std::string content[2];
        long offset[2];
        for (int side = 0; side < 2; ++side) {
            std::fflush(t.stream[side]);
            offset[side] = lseek(t.in[side], 0, SEEK_CUR);
            content[side].resize(static_cast<std::size_t>(lseek(t.in[side], 0, SEEK_END)));
            lseek(t.in[side], offset[side], SEEK_SET);
            if (pread(t.in[side], content[side].data(), content[side].size(), 0) < 0) std::exit(96);
        }
        if (offset[0] != offset[1]) differ("offsets %ld and %ld", offset[0], offset[1]);
        if (content[0] != content[1]) differ("files differ");
    }

    // Some parts of arrays, or of ordinary memory, that do not overlap.
    std::vector<Part> choose(std::size_t most) {
        std::vector<Part> parts(1 + dice->below(static_cast<std::uint32_t>(most)));
        for (std::size_t i = 0; i < parts.size(); ++i) {
            Part& p = parts[i];
            p.array = parts.size() == 1 ? dice->below(4) : i % 4;
            p.ordinary = parts.size() > 1 && dice->below(4) == 0;
            const auto size = p.ordinary ? ordinary_[0].size() : arrays_[p.array].model.size();
            p.offset = up_to(size - 1);
            p.bytes = up_to(size - p.offset);
        }
        if (parts.size() > 4) parts.resize(4);
        bool one = false;
        for (Part& p : parts) {
            if (p.ordinary && one) p.ordinary = false, p.offset = p.bytes = 0;
            one = one || p.ordinary;
        }
        return parts;
    }
    std::vector<iovec> of_side(const std::vector<Part>& parts, int side) {
        std::vector<iovec> vector;
        for (const Part& p : parts) {
            Byte* const begin = p.ordinary  ? ordinary_[side].data()
                                : side == 0 ? arrays_[p.array].gpu
                                            : arrays_[p.array].model.data();
            vector.push_back({begin + p.offset, p.bytes});
        }
        return vector;
    }

    void call() {
        Twin& t = twins_[dice->below(6)];
        const auto kind = dice->below(t.regular ? 8 : 9);
        const bool one = kind < 4;
        const auto parts = choose(one ? 1 : 4);
        const auto offset = static_cast<off_t>(up_to(5 << 20));
        const auto fault = dice->below(6) == 0 ? dice->next() | 1 : 0;
        long result[2];
        int error[2];
        for (int side = 0; side < 2; ++side) {
            const auto v = of_side(parts, side);
            void* const at = v[0].iov_base;
            auto bytes = v[0].iov_len;
            const auto n = static_cast<int>(v.size());
            // A long read is made in pieces, and one that fails on the way ends there.
            const bool short_read =
                side == 1 && fault != 0 && t.regular && (kind == 0 || kind == 2) && bytes > (1 << 20) && result[0] > 0;
            if (short_read) bytes = std::min(bytes, static_cast<std::size_t>(result[0]));
            if (arm != nullptr) arm(short_read ? 0 : fault, t.in[side], t.out[side]);
            errno = 0;
            msghdr message{};
            message.msg_iov = const_cast<iovec*>(v.data());
            message.msg_iovlen = v.size();
            const int in = t.in[side], out = t.out[side];
            if (t.regular) {
                const std::size_t which = kind;
                result[side] = which == 0   ? read(in, at, bytes)
                               : which == 1 ? write(out, at, bytes)
                               : which == 2 ? pread(in, at, bytes, offset)
                               : which == 3 ? pwrite(out, at, bytes, offset)
                               : which == 4 ? readv(in, v.data(), n)
                               : which == 5 ? writev(out, v.data(), n)
                               : which == 6 ? preadv(in, v.data(), n, offset)
                                            : pwritev(out, v.data(), n, offset);
            } else {
                result[side] = kind == 0   ? read(in, at, bytes)
                               : kind == 1 ? write(out, at, bytes)
                               : kind == 2 ? recv(in, at, bytes, MSG_PEEK)
                               : kind == 3 ? send(out, at, bytes, MSG_NOSIGNAL)
                               : kind == 4 ? readv(in, v.data(), n)
                               : kind == 5 ? writev(out, v.data(), n)
                               : kind == 6 ? recvmsg(in, &message, 0)
                               : kind == 7 ? sendmsg(out, &message, MSG_NOSIGNAL)
                                           : recv(in, at, bytes, 0);
            }
            error[side] = result[side] < 0 ? errno : 0;
        }
        if (arm != nullptr) arm(0, -1, -1);
        if (result[0] != result[1] || error[0] != error[1]) {
            differ("call %u of %s: %ld (errno %d), not %ld (errno %d); %zu parts, the first %zu bytes", kind,
                   t.regular ? "a file" : "a pipe or socket", result[0], error[0], result[1], error[1], parts.size(),
                   parts[0].bytes);
        }
        for (const Part& p : parts) {
            if (!p.ordinary && dice->below(4) == 0) compare(arrays_[p.array], p.offset, p.bytes, "after a call");
        }
        if (ordinary_[0] != ordinary_[1]) differ("ordinary memory differs");
        if (t.regular && dice->below(20) == 0) compare_files(t);
    }

    void items() {
        Twin& t = twins_[dice->below(3)];
        const auto part = choose(1)[0];
        const auto size = dice->below(3) == 0 ? 1 + up_to(5000) : 1;
        const auto count = part.bytes / size;
        const auto kind = dice->below(4);
        const long to = dice->below(3) == 0 ? static_cast<long>(up_to(4 << 20)) : -1;
        std::size_t result[2];
        int flags[2];
        for (int side = 0; side < 2; ++side) {
            FILE* const stream = t.stream[side];
            void* const at = of_side({part}, side)[0].iov_base;
            std::fseek(stream, to < 0 ? 0 : to, to < 0 ? SEEK_CUR : SEEK_SET);
            result[side] = kind == 0   ? std::fread(at, size, count, stream)
                           : kind == 1 ? std::fwrite(at, size, count, stream)
                           : kind == 2 ? fread_unlocked(at, size, count, stream)
                                       : fwrite_unlocked(at, size, count, stream);
            std::fflush(stream);
            flags[side] = std::feof(stream) * 2 + std::ferror(stream);
            std::clearerr(stream);
        }
        if (result[0] != result[1] || flags[0] != flags[1]) {
            differ("items, call %u: %zu (flags %d), not %zu (flags %d) of %zu times %zu", kind, result[0], flags[0],
                   result[1], flags[1], count, size);
        }
        if (dice->below(4) == 0) compare(arrays_[part.array], part.offset, part.bytes, "after items");
    }

    std::vector<Array> arrays_;
    std::vector<Twin> twins_;
    std::vector<Byte> ordinary_[2] = {std::vector<Byte>(3000), std::vector<Byte>(3000)};
};

}  // namespace

int main(int argc, char** argv) {
    Random random(argc > 1 ? static_cast<std::uint32_t>(std::atoi(argv[1])) : 1);
    const long operations = argc > 2 ? std::atol(argv[2]) : 1000;
    dice = &random;
    arm = reinterpret_cast<Arm>(dlsym(RTLD_DEFAULT, "fail_next_call"));
    Run run(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 3000000);
    for (long i = 0; i < operations; ++i) run.step();
    run.check_all();
    std::printf("%ld operations%s\n", operations, arm != nullptr ? ", some of which were made to fail" : "");
}
