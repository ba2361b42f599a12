// SPDX-License-Identifier: MIT
// Copies that tests/apps/copies.cu has not: with CUDA arrays, and in batches. In the plain form the object is given
// where the call takes host memory, with blocks in every state: as a kernel left them, read by the CPU, and written by
// it. When copies return. Linked with libcuda too.
#include <cuda.h>
#include <sched.h>

#include <atomic>

#include "program.h"

constexpr unsigned width = 4000, rows = 60, count = width * rows;
constexpr std::size_t row_bytes = width * sizeof(unsigned);

// Host memory with what the object holds from element `first` on: the object itself, or a copy.
struct Host {
    unsigned* memory;
    unsigned *object, n;
    Host(Data& data, unsigned first, unsigned elements) : object(data.gpu + first), n(elements) {
        memory = plain ? object : static_cast<unsigned*>(std::malloc(n * sizeof(unsigned)));
        if (!plain) CHECK(cudaMemcpy(memory, object, n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    }
    // What was written there becomes the object's.
    void keep() const {
        if (!plain) CHECK(cudaMemcpy(object, memory, n * sizeof(unsigned), cudaMemcpyHostToDevice));
    }
    ~Host() {
        if (!plain) std::free(memory);
    }
};

static void say_sum(const char* what, const Data& data) {
    CHECK(cudaDeviceSynchronize());
    Checksum checksum;
    for (unsigned i = 0; i < data.count; i += 7) {
        const unsigned value = data.get(i);
        checksum.add(&value, sizeof value);
    }
    say("%s %016llx\n", what, static_cast<unsigned long long>(checksum.value()));
}

// Blocks of `data` become Dirty here and there, ReadOnly elsewhere, and stay as the kernel left them at the rest.
static void mix(Data& data, unsigned seed) {
    data.launch();
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = seed * 1000; i < data.count / 2; i += 20011) data.set(i, i + seed);
    unsigned sum = 0;
    for (unsigned i = data.count / 2; i < data.count; i += 30011) sum += data.get(i);
    say("read %u\n", sum);
}

template <class Copy>
static void both_ways(Copy&& copy) {
    Data from(count), to(count);
    for (unsigned turn = 0; turn < 4; ++turn) {
        mix(from, turn);
        if (turn % 2 != 0) mix(to, turn);  // what is overwritten may be newer on either side
        copy(from, to);
        say_sum("to", to);
        say_sum("from", from);
    }
}

static CUarray new_line() {
    CHECK(cudaFree(nullptr));  // makes the context current
    CUDA_ARRAY_DESCRIPTOR descriptor = {};
    descriptor.Width = width;
    descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    descriptor.NumChannels = 1;
    CUarray array = nullptr;
    CHECK_CU(cuArrayCreate(&array, &descriptor));
    return array;
}

static void line(int, char**) {
    CUarray array = new_line();
    both_ways([&](Data& from, Data& to) {
        for (unsigned first = 13; first + width <= count; first += 5 * width) {
            const Host source(from, first, width - 20);
            CHECK_CU(cuMemcpyHtoA(array, 40, source.memory, row_bytes - 80));
            const Host target(to, first + 3, width - 30);
            CHECK_CU(cuMemcpyAtoH(target.memory, array, 44, row_bytes - 120));
            target.keep();
        }
    });
    CHECK_CU(cuArrayDestroy(array));
}

static void line_async(int, char**) {
    CUarray array = new_line();
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    both_ways([&](Data& from, Data& to) {
        for (unsigned first = 13; first + width <= count; first += 5 * width) {
            const Host source(from, first, width - 20);
            CHECK_CU(cuMemcpyHtoAAsync(array, 40, source.memory, row_bytes - 80, stream));
            const Host target(to, first + 3, width - 30);
            CHECK_CU(cuMemcpyAtoHAsync(target.memory, array, 44, row_bytes - 120, stream));
            CHECK(cudaStreamSynchronize(stream));
            target.keep();
        }
    });
    CHECK(cudaStreamDestroy(stream));
    CHECK_CU(cuArrayDestroy(array));
}

static void line_on_device(int, char**) {
    CUarray array = new_line();
    both_ways([&](Data& from, Data& to) {
        for (unsigned first = 13; first + width <= count; first += 5 * width) {
            CHECK_CU(cuMemcpyDtoA(array, 40, reinterpret_cast<CUdeviceptr>(from.gpu + first), row_bytes - 80));
            CHECK_CU(cuMemcpyAtoD(reinterpret_cast<CUdeviceptr>(to.gpu + first + 3), array, 44, row_bytes - 120));
        }
    });
    CHECK_CU(cuArrayDestroy(array));
}

static cudaArray_t new_plane() {
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    cudaArray_t array = nullptr;
    CHECK(cudaMallocArray(&array, &format, width, rows));
    return array;
}

static void plane(int, char**) {
    cudaArray_t array = new_plane();
    both_ways([&](Data& from, Data& to) {
        const Host source(from, 0, count);
        CHECK(cudaMemcpy2DToArray(array, 0, 0, source.memory, row_bytes, row_bytes, rows, cudaMemcpyHostToDevice));
        const Host target(to, 0, count);
        CHECK(cudaMemcpy2DFromArray(target.memory, row_bytes, array, 16, 2, row_bytes - 16, rows - 2,
                                    cudaMemcpyDeviceToHost));
        target.keep();
    });
    CHECK(cudaFreeArray(array));
}

static void plane_3d(int, char**) {
    cudaArray_t array = new_plane();
    both_ways([&](Data& from, Data& to) {
        const Host source(from, 0, count);
        cudaMemcpy3DParms in = {};
        in.srcPtr = make_cudaPitchedPtr(source.memory, row_bytes, width, rows);
        in.dstArray = array;
        in.extent = make_cudaExtent(width, rows, 1);
        in.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&in));
        const Host target(to, 0, count);
        cudaMemcpy3DParms out = {};
        out.srcArray = array;
        out.srcPos = make_cudaPos(5, 1, 0);
        out.dstPtr = make_cudaPitchedPtr(target.memory, row_bytes, width, rows);
        out.extent = make_cudaExtent(width - 10, rows - 1, 1);
        out.kind = cudaMemcpyDeviceToHost;
        CHECK(cudaMemcpy3D(&out));
        target.keep();
    });
    CHECK(cudaFreeArray(array));
}

// Each copy of a batch takes another piece; pieces begin and end inside of blocks.
// Copies between host memory and the device are done when they return (those to pageable memory also where they are
// asynchronous): what other streams do next comes after them.
static void done_on_return(int, char**) {
    constexpr unsigned many_rows = 300, many = width * many_rows;  // what a driver does not keep for itself meanwhile
    cudaStream_t beside = nullptr;
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    Data there(many), seen(many), near(many);
    unsigned value = 0, wrong = 0;
    const auto to_device = [&](auto&& copy) {
        Host host(near, 0, many);
        ++value;
        for (unsigned i = 0; i < many; ++i) host.memory[i] = value;
        copy(there.gpu, host.memory);
        CHECK(cudaMemcpyAsync(seen.gpu, there.gpu, many * 4, cudaMemcpyDeviceToDevice, beside));
        CHECK(cudaStreamSynchronize(beside));
        for (unsigned i = 0; i < many; i += 997) wrong += load(seen.gpu + i) != value;
    };
    const auto to_host = [&](auto&& copy) {
        Host host(near, 0, many);
        ++value;
        CHECK(cudaMemset(there.gpu, static_cast<int>(value), many * 4));
        CHECK(cudaDeviceSynchronize());
        copy(host.memory, there.gpu);
        CHECK(cudaMemsetAsync(there.gpu, 99, many * 4, beside));
        CHECK(cudaStreamSynchronize(beside));
        for (unsigned i = 0; i < many; i += 997) wrong += host.memory[i] != value * 0x01010101u;
    };
    for (int round = 0; round < 3; ++round) {
        to_device([](unsigned* to, unsigned* from) { CHECK(cudaMemcpy(to, from, many * 4, cudaMemcpyHostToDevice)); });
        to_device([](unsigned* to, unsigned* from) {
            CHECK(cudaMemcpy2D(to, row_bytes, from, row_bytes, row_bytes, many_rows, cudaMemcpyHostToDevice));
        });
        to_host([](unsigned* to, unsigned* from) { CHECK(cudaMemcpy(to, from, many * 4, cudaMemcpyDeviceToHost)); });
        to_host([](unsigned* to, unsigned* from) {
            CHECK(cudaMemcpy2D(to, row_bytes, from, row_bytes, row_bytes, many_rows, cudaMemcpyDeviceToHost));
        });
        to_host([](unsigned* to, unsigned* from) {
            CHECK(cudaMemcpyAsync(to, from, many * 4, cudaMemcpyDeviceToHost, nullptr));
        });
        to_host([](unsigned* to, unsigned* from) {
            CHECK(cudaMemcpy2DAsync(to, row_bytes, from, row_bytes, row_bytes, many_rows, cudaMemcpyDeviceToHost,
                                    nullptr));
        });
    }
    say("%u wrong\n", wrong);
}

// Another thread captures meanwhile, in a stream that has nothing to do with the copies.
static void beside_a_capture(int, char**) {
    cudaStream_t captured = nullptr, other = nullptr;
    CHECK(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    Data near(4 * count), there(4 * count);
    unsigned* const memory = plain ? near.gpu : static_cast<unsigned*>(std::calloc(4 * count, sizeof(unsigned)));
    for (const auto mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        CHECK(cudaStreamBeginCapture(captured, mode));
        auto copies = [&] {
            constexpr std::size_t bytes = 4 * count * sizeof(unsigned);
            say("%d", cudaMemcpy(there.gpu, memory, bytes, cudaMemcpyHostToDevice));
            say(" %d", cudaMemcpy(memory, there.gpu, bytes, cudaMemcpyDeviceToHost));
            say(" %d", cudaMemcpyAsync(memory, there.gpu, bytes, cudaMemcpyDeviceToHost, other));
            say(" %d", cudaMemcpy2D(there.gpu, 64, memory, 64, 64, 64, cudaMemcpyHostToDevice));
            say(" %d\n", cudaMemcpy2D(memory, 64, there.gpu, 64, 64, 64, cudaMemcpyDeviceToHost));
        };
        pthread_join(start(copies), nullptr);
        cudaGraph_t graph = nullptr;
        say("captured: %d\n", cudaStreamEndCapture(captured, &graph));
        cudaGetLastError();
    }
    if (!plain) std::free(memory);
}

// In turn with a kernel that the copy waits for: it returns before, if the driver keeps its bytes meanwhile.
static void kept_by_the_driver(int, char**) {
    static std::atomic<bool> go{false};
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Data near(1000), there(1000);
    CHECK(cudaMemset(there.gpu, 5, 4000));
    CHECK(cudaDeviceSynchronize());
    // Pinned in the copying form: the soft device's own copies to pageable memory wait for their stream.
    unsigned* memory = near.gpu;
    if (!plain) CHECK(cudaMallocHost(&memory, 4000));
    CHECK(cudaLaunchHostFunc(
        stream,
        [](void*) {
            while (!go) sched_yield();
        },
        nullptr));
    CHECK(cudaMemcpyAsync(memory, there.gpu, 4000, cudaMemcpyDeviceToHost, stream));
    go = true;
    CHECK(cudaStreamSynchronize(stream));
    say("%x\n", memory[700]);
    if (!plain) CHECK(cudaFreeHost(memory));
}

static void batch(int, char**) {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    both_ways([&](Data& from, Data& to) {
        constexpr unsigned pieces = 9, piece = count / pieces - 50;
        void* targets[pieces];
        const void* sources[pieces];
        std::size_t sizes[pieces];
        const Host source(from, 0, count);
        for (unsigned n = 0; n < pieces; ++n) {
            sources[n] = n % 2 == 0 ? source.memory + n * (piece + 50) : from.gpu + n * (piece + 50);
            targets[n] = to.gpu + n * (piece + 50) + 21;
            sizes[n] = piece * sizeof(unsigned);
        }
        cudaMemcpyAttributes attributes = {};
        attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        std::size_t first = 0;
        CHECK(cudaMemcpyBatchAsync(targets, sources, sizes, pieces, &attributes, &first, 1, stream));
        CHECK(cudaStreamSynchronize(stream));
    });
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char** argv) {
    const Case cases[] = {{"batch", batch},
                          {"line", line},
                          {"line_async", line_async},
                          {"line_on_device", line_on_device},
                          {"plane", plane},
                          {"plane_3d", plane_3d},
                          {"done_on_return", done_on_return},
                          {"beside_a_capture", beside_a_capture},
                          {"kept_by_the_driver", kept_by_the_driver}};
    return run_case(cases, argc, argv);
}
