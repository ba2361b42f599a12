// SPDX-License-Identifier: MIT
// cudaMemcpy in every direction and kind, from and to odd offsets, on objects whose parts were last written by the CPU,
// by kernels, by other copies, or by nobody. A plain array beside every object says what it must hold. The "host" side
// of a copy is ordinary memory or, in the plain form, an object itself.
#include "checked.h"

constexpr std::size_t symbol_size = 3001;
__device__ unsigned char symbol[symbol_size];

// What a copy may start from or end in: a device object or host memory, with its model.
struct End {
    unsigned char* pointer;
    unsigned char* model;
    bool device;
};

static cudaMemcpyKind kind_of(const End& to, const End& from, Random& random) {
    if (random.below(3) == 0) return cudaMemcpyDefault;
    if (to.device) return from.device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
    return from.device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

struct Box {
    std::size_t width, height, depth, pitch, slice_rows;
    std::size_t bytes() const { return (depth - 1) * pitch * slice_rows + (height - 1) * pitch + width; }
};

static void copy_model(unsigned char* to, const Box& t, const unsigned char* from, const Box& f) {
    for (std::size_t z = 0; z < t.depth; ++z) {
        for (std::size_t y = 0; y < t.height; ++y) {
            for (std::size_t x = 0; x < t.width; ++x) {
                to[(z * t.slice_rows + y) * t.pitch + x] = from[(z * f.slice_rows + y) * f.pitch + x];
            }
        }
    }
}

static void copy(const End& to, const Box& t, const End& from, const Box& f, cudaMemcpyKind kind, unsigned form,
                 cudaStream_t stream) {
    if (t.height == 1 && t.depth == 1) {
        const std::size_t n = t.width;
        const bool devices = to.device && from.device;
        if (form == 0) CHECK(cudaMemcpy(to.pointer, from.pointer, n, kind));
        if (form == 1) CHECK(cudaMemcpyAsync(to.pointer, from.pointer, n, kind, stream));
        if (form == 2 && devices) CHECK(cudaMemcpyPeer(to.pointer, 0, from.pointer, 0, n));
        if (form == 3 && devices) CHECK(cudaMemcpyPeerAsync(to.pointer, 0, from.pointer, 0, n, stream));
        if (form >= 2 && !devices) CHECK(cudaMemcpyAsync(to.pointer, from.pointer, n, kind, stream));
    } else if (t.depth == 1) {
        if (form % 2 == 0) {
            CHECK(cudaMemcpy2D(to.pointer, t.pitch, from.pointer, f.pitch, t.width, t.height, kind));
        } else {
            CHECK(cudaMemcpy2DAsync(to.pointer, t.pitch, from.pointer, f.pitch, t.width, t.height, kind, stream));
        }
    } else {
        cudaMemcpy3DParms p = {};
        p.srcPtr = make_cudaPitchedPtr(from.pointer, f.pitch, f.pitch, f.slice_rows);
        p.dstPtr = make_cudaPitchedPtr(to.pointer, t.pitch, t.pitch, t.slice_rows);
        p.extent = make_cudaExtent(t.width, t.height, t.depth);
        p.kind = kind;
        if (form % 2 == 0) CHECK(cudaMemcpy3D(&p));
        if (form % 2 == 1) CHECK(cudaMemcpy3DAsync(&p, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
}

static void copy_symbol(const End& other, std::size_t offset, std::size_t n, bool into, bool async, cudaStream_t stream,
                        unsigned char* symbol_model) {
    const cudaMemcpyKind in = other.device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
    const cudaMemcpyKind out = other.device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
    if (into && async) CHECK(cudaMemcpyToSymbolAsync(symbol, other.pointer, n, offset, in, stream));
    if (into && !async) CHECK(cudaMemcpyToSymbol(symbol, other.pointer, n, offset, in));
    if (!into && async) CHECK(cudaMemcpyFromSymbolAsync(other.pointer, symbol, n, offset, out, stream));
    if (!into && !async) CHECK(cudaMemcpyFromSymbol(other.pointer, symbol, n, offset, out));
    CHECK(cudaStreamSynchronize(stream));
    for (std::size_t i = 0; i < n; ++i) {
        if (into) symbol_model[offset + i] = other.model[i];
        if (!into) other.model[i] = symbol_model[offset + i];
    }
}

int main(int argc, char** argv) {
    const unsigned steps = static_cast<unsigned>(size_argument(argc, argv, 400));
    constexpr std::size_t n = 20011;
    Checked objects[] = {Checked(n), Checked(n), Checked(n)};
    // Host memory; in the plain form the second is an object as well, that only the CPU and copies touch.
    std::vector<unsigned char> host(n, 1), host_model(n, 1), second_model(n, 2), symbol_model(symbol_size, 0);
    unsigned char* second = nullptr;
    if (explicit_copies) second = static_cast<unsigned char*>(std::malloc(n));
    if (!explicit_copies) CHECK(cudaMalloc(&second, n));
    for (std::size_t i = 0; i < n; ++i) second[i] = 2;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    Random random(23);
    const auto end = [&](unsigned which, std::size_t offset) {
        if (which == 3) return End{host.data() + offset, host_model.data() + offset, false};
        if (which == 4) return End{second + offset, second_model.data() + offset, false};
        return End{objects[which].gpu(offset), objects[which].model.data() + offset, true};
    };
    for (unsigned s = 0; s < steps; ++s) {
        const unsigned to = random.below(5), from = (to + 1 + random.below(4)) % 5;  // never the same
        Checked& touched = objects[random.below(3)];
        const std::size_t first = random.below(n / 2), count = random.below(n / 4);
        switch (random.below(8)) {
            case 0: touched.cpu_write(first, count, s); break;
            case 1: touched.gpu_write(first, count, s); break;
            case 2: touched.cpu_read(first, count); break;
            case 3:
                second[first] = second_model[first] = static_cast<unsigned char>(s);
                host[first] = host_model[first] = static_cast<unsigned char>(s + 1);
                break;
            case 4: {
                const std::size_t offset = random.below(symbol_size / 2), size = 1 + random.below(symbol_size / 2);
                copy_symbol(end(to, first), offset, size, random.below(2), random.below(2), stream,
                            symbol_model.data());
                break;
            }
            default: {
                const unsigned dimensions = random.below(3);
                Box t = {1 + random.below(dimensions == 0 ? n / 2 : 60), 1, 1, 0, 0};
                if (dimensions >= 1) t.height = 2 + random.below(20);
                if (dimensions == 2) t.depth = 2 + random.below(3);
                Box f = t;
                t.pitch = t.width + random.below(40), t.slice_rows = t.height + random.below(3);
                f.pitch = f.width + random.below(40), f.slice_rows = f.height + random.below(3);
                const End target = end(to, random.below(static_cast<unsigned>(n - t.bytes())));
                const End source = end(from, random.below(static_cast<unsigned>(n - f.bytes())));
                copy(target, t, source, f, kind_of(target, source, random), random.below(4), stream);
                copy_model(target.model, t, source.model, f);
            }
        }
    }

    Checksum checksum;
    std::size_t wrong = 0;
    for (Checked& o : objects) wrong += o.finish(checksum);
    for (std::size_t i = 0; i < n; ++i) wrong += host[i] != host_model[i] || second[i] != second_model[i];
    checksum.add(host.data(), n);
    checksum.add(second, n);
    std::printf("copies steps=%u wrong=%zu\n", steps, wrong);
    checksum.print();
    CHECK(cudaStreamDestroy(stream));
    if (explicit_copies) std::free(second);
    if (!explicit_copies) CHECK(cudaFree(second));
    return wrong != 0;
}
