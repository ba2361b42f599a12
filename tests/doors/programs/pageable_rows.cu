// SPDX-License-Identifier: MIT
// Copies of rows and volumes between the program's own memory and the device (pageable.h).
#include <algorithm>
#include <chrono>
#include <thread>

#include <cuda.h>

#include "pageable.h"

// Rows somewhere in a larger memory, of which the rest must stay as it is.
struct Rows {
    std::size_t width, rows, pitch, first;
    std::size_t bytes() const { return first + rows * pitch; }
    void fill_in(Bytes& memory, unsigned seed) const {
        for (std::size_t r = 0; r < rows; ++r) fill(&memory[first + r * pitch], width, seed + static_cast<unsigned>(r));
    }
    // Whether these rows are there, and `rest` in all other bytes.
    bool are_in(const Bytes& memory, unsigned seed, unsigned char rest) const {
        std::size_t at = 0;
        const auto rest_until = [&](std::size_t end) {
            while (at < end && memory[at] == rest) ++at;
            return at == end;
        };
        for (std::size_t r = 0; r < rows; ++r, at += width) {
            if (!rest_until(first + r * pitch) || !is(&memory[at], width, seed + static_cast<unsigned>(r)))
                return false;
        }
        return rest_until(memory.size());
    }
};

static void there_and_back(std::size_t width, std::size_t rows, std::size_t host_gap, std::size_t device_gap,
                           std::size_t odd, unsigned seed) {
    const Rows host{width, rows, width + host_gap, odd}, on_device{width, rows, width + device_gap, 2 * odd};
    Device d(on_device.bytes());
    Bytes from(host.bytes(), 1), whole(on_device.bytes()), to(host.bytes(), 9);
    CHECK(cudaMemset(d.p, 7, on_device.bytes()));
    host.fill_in(from, seed);
    CHECK(cudaMemcpy2D(d.p + on_device.first, on_device.pitch, &from[host.first], host.pitch, width, rows, to_device));
    std::memset(from.data(), 0xee, from.size());  // it may be reused at once
    CHECK(cudaMemcpy2D(&to[host.first], host.pitch, d.p + on_device.first, on_device.pitch, width, rows, to_host));
    WANT(host.are_in(to, seed, 9));
    CHECK(cudaMemcpy(whole.data(), d.p, whole.size(), cudaMemcpyDeviceToHost));
    WANT(on_device.are_in(whole, seed, 7));
}

// Narrow and wide rows, few and many, with and without gaps on either side; wider than a block of the staging.
static void rows() {
    unsigned seed = 0;
    for (int again = 0; again < 3; ++again) {
        there_and_back(1000, 1100, 24, 280, 0, ++seed);
        there_and_back(4096, 700, 0, 512, 13, ++seed);
        there_and_back(65536 + 8, 40, 100, 0, 3, ++seed);
        there_and_back(700 * 1024 + 1, 3, 7, 1024, 1, ++seed);
        there_and_back(512, 4096, 0, 0, 5, ++seed);  // no rows at all, but linear
        there_and_back(3 * kMiB, 1, 11, 12, 0, ++seed);
    }
    there_and_back(3, 300000, 1, 5, 0, ++seed);
    there_and_back(5 * kMiB, 3, 64, 512, 0, ++seed);
    there_and_back(10000, 3400, 6384, 240, 9, ++seed);
    for (int i = 0; i < 2; ++i) there_and_back(0, i, 8, 8, 0, ++seed);
}

static void wide() {
    for (unsigned seed = 0; seed < 6; ++seed) there_and_back(9000, 300 + seed, 8, 216, 0, seed);
}

// A volume on the device as cudaMalloc3D has it, and one of the program's; all of both, or a part of each.
static void volume(cudaExtent part, cudaPos host_at, cudaPos device_at, std::size_t host_height,
                   std::size_t device_height, unsigned seed) {
    const std::size_t host_pitch = host_at.x + part.width + 3;
    const std::size_t host_depth = host_at.z + part.depth, device_depth = device_at.z + part.depth;
    cudaPitchedPtr device{};
    CHECK(cudaMalloc3D(&device, make_cudaExtent(device_at.x + part.width, device_height, device_depth)));
    Bytes from(host_pitch * host_height * host_depth, 1), to(from.size(), 9);
    const auto row = [&](std::size_t y, std::size_t z) {
        return ((host_at.z + z) * host_height + host_at.y + y) * host_pitch + host_at.x;
    };
    for (std::size_t z = 0; z < part.depth; ++z) {
        for (std::size_t y = 0; y < part.height; ++y)
            fill(&from[row(y, z)], part.width, seed + static_cast<unsigned>(z * part.height + y));
    }
    cudaMemcpy3DParms there{};
    there.srcPtr = make_cudaPitchedPtr(from.data(), host_pitch, part.width, host_height);
    there.srcPos = host_at;
    there.dstPtr = device;
    there.dstPtr.ysize = device_height;
    there.dstPos = device_at;
    there.extent = part;
    there.kind = to_device;
    CHECK(cudaMemcpy3D(&there));
    cudaMemcpy3DParms back{};
    back.srcPtr = there.dstPtr;
    back.srcPos = device_at;
    back.dstPtr = make_cudaPitchedPtr(to.data(), host_pitch, part.width, host_height);
    back.dstPos = host_at;
    back.extent = part;
    back.kind = to_host;
    CHECK(cudaMemcpy3D(&back));
    for (std::size_t z = 0; z < part.depth; ++z) {
        for (std::size_t y = 0; y < part.height; ++y) {
            auto* const got = &to[row(y, z)];
            WANT(is(got, part.width, seed + static_cast<unsigned>(z * part.height + y)));
            std::memset(got, 9, part.width);
        }
    }
    WANT(std::all_of(to.begin(), to.end(), [](auto byte) { return byte == 9; }));  // nothing beside them
    CHECK(cudaFree(device.ptr));
}
static void volumes() {
    for (unsigned again = 0; again < 3; ++again) {
        volume(make_cudaExtent(200, 60, 100), make_cudaPos(0, 0, 0), make_cudaPos(0, 0, 0), 60, 60, again);
        volume(make_cudaExtent(1024, 33, 50), make_cudaPos(5, 0, 2), make_cudaPos(16, 0, 1), 33, 33, again);
        volume(make_cudaExtent(1000, 30, 40), make_cudaPos(1, 2, 3), make_cudaPos(0, 4, 0), 40, 34, again);
        volume(make_cudaExtent(3000, 300, 1), make_cudaPos(1, 2, 3), make_cudaPos(0, 4, 0), 400, 304, again);
    }
}

// With kernels before and after.
static void order() {
    const std::size_t width = 3000, pitch = 3072, count = 700, n = pitch * count;
    Device d(n);
    cudaStream_t blocking, other;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    const Rows rows{width, count, width, 0};
    Bytes host(width * count), got(width * count);
    const auto all_are = [&](unsigned seed, unsigned more) {
        for (std::size_t i = 0; i < got.size(); ++i)
            WANT(got[i] ==
                 static_cast<unsigned char>(pattern(i % width, seed + static_cast<unsigned>(i / width)) + more));
    };
    for (int round = 0; round < 4; ++round) {
        rows.fill_in(host, 1);
        CHECK(cudaMemcpy2D(d.p, pitch, host.data(), width, width, count, to_device));
        add_one_to(d.p, n, blocking);
        CHECK(cudaMemcpy2D(got.data(), width, d.p, pitch, width, count, to_host));  // waits for blocking streams
        all_are(1, 1);
        for (cudaStream_t stream : {blocking, other}) {
            rows.fill_in(host, 2);
            CHECK(cudaMemcpy2DAsync(d.p, pitch, host.data(), width, width, count, to_device, stream));
            std::memset(host.data(), 0, host.size());  // pageable: it may be reused
            add_one_to(d.p, n, stream);
            add_one_to(d.p, n, stream);
            CHECK(cudaMemcpy2DAsync(got.data(), width, d.p, pitch, width, count, to_host, stream));
            CHECK(cudaStreamSynchronize(stream));
            all_are(2, 2);
        }
    }
    CHECK(cudaStreamDestroy(blocking));
    CHECK(cudaStreamDestroy(other));
}

// By the driver's functions for programs that are compiled for a default stream of each thread.
static void per_thread() {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    CHECK(cudaGetDriverEntryPointByVersion("cuMemcpy2D", &function, 12000, cudaEnablePerThreadDefaultStream, &found));
    const auto copy = reinterpret_cast<decltype(&cuMemcpy2D)>(function);
    const std::size_t width = 2500, pitch = 2560, count = 600;
    Device d(pitch * count);
    Bytes host(width * count), got(width * count);
    CUDA_MEMCPY2D there{}, back{};
    there.srcMemoryType = CU_MEMORYTYPE_HOST, there.srcHost = host.data(), there.srcPitch = width;
    there.dstMemoryType = CU_MEMORYTYPE_DEVICE, there.dstDevice = reinterpret_cast<CUdeviceptr>(d.p);
    there.dstPitch = pitch, there.WidthInBytes = width, there.Height = count;
    back.srcMemoryType = CU_MEMORYTYPE_DEVICE, back.srcDevice = there.dstDevice, back.srcPitch = pitch;
    back.dstMemoryType = CU_MEMORYTYPE_HOST, back.dstHost = got.data(), back.dstPitch = width;
    back.WidthInBytes = width, back.Height = count;
    for (unsigned round = 0; round < 10; ++round) {
        fill(host.data(), host.size(), round);
        WANT(copy(&there) == CUDA_SUCCESS);
        CHECK(cudaLaunchHostFunc(
            cudaStreamPerThread, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }, nullptr));
        add_one_to(d.p, pitch * count, cudaStreamPerThread);
        WANT(copy(&back) == CUDA_SUCCESS);
        for (std::size_t i = 0; i < got.size(); ++i) WANT(got[i] == static_cast<unsigned char>(host[i] + 1));
    }
}

static void threads() {
    std::vector<std::thread> all;
    for (unsigned t = 0; t < 6; ++t) {
        all.emplace_back([t] {
            for (unsigned i = 0; i < 4; ++i)
                there_and_back(2000 + t * 100, 500 + i * 200, t * 8, i * 16, t, t * 10 + i);
        });
    }
    for (auto& t : all) t.join();
}

// What the driver refuses is refused, and nothing is moved.
static void refused() {
    const std::size_t n = 4 * kMiB;
    Device d(n);
    Bytes host(2 * n), got(n);
    CHECK(cudaMemset(d.p, 7, n));
    const auto print = [](cudaError_t result) {
        std::printf("%s\n", cudaGetErrorName(result));
        cudaGetLastError();
    };
    for (int i = 0; i < 3; ++i) {
        print(cudaMemcpy2D(d.p, 1000, host.data(), 1024, 1024, 1000, to_device));  // wider than its pitch
        print(cudaMemcpy2D(d.p, 1024, host.data(), 1000, 1024, 1000, to_device));
        print(cudaMemcpy2D(d.p, 1100, host.data(), 1024, 1024, 4000, to_device));  // ends behind the allocation
    }
    // The driver itself, to which the runtime does not come with these.
    for (const std::size_t at : {0, 8}) {
        CUDA_MEMCPY2D rows{};
        rows.srcMemoryType = CU_MEMORYTYPE_HOST, rows.srcHost = host.data(), rows.srcXInBytes = at,
        rows.srcPitch = 1024;
        rows.dstMemoryType = CU_MEMORYTYPE_DEVICE, rows.dstDevice = reinterpret_cast<CUdeviceptr>(d.p);
        rows.dstPitch = 2048, rows.WidthInBytes = 1025 - at / 8, rows.Height = 1000;
        for (int i = 0; i < 2; ++i) std::printf("%d\n", cuMemcpy2D(&rows));
    }
    for (int i = 0; i < 2; ++i) {
        // As an allocation that failed.
        print(cudaMemcpy(d.p, nullptr, n, to_device));
        print(cudaMemcpy(nullptr, d.p, n, to_host));
        print(cudaMemcpyAsync(d.p, nullptr, n, to_device));
        print(cudaMemcpyAsync(nullptr, d.p, n, to_host));
        print(cudaMemcpy2D(d.p, 2048, nullptr, 2048, 1024, 2000, to_device));
        print(cudaMemcpy2D(nullptr, 2048, d.p, 2048, 1024, 2000, to_host));
        // To where it says it comes from.
        print(cudaMemcpy(d.p, host.data(), n, cudaMemcpyDeviceToHost));
        print(cudaMemcpyAsync(host.data(), d.p, n, cudaMemcpyHostToDevice));
    }
    // A volume with a row, or a slice, more than there is.
    CUDA_MEMCPY3D volume{};
    volume.srcMemoryType = CU_MEMORYTYPE_HOST, volume.srcHost = host.data();
    volume.dstMemoryType = CU_MEMORYTYPE_DEVICE, volume.dstDevice = reinterpret_cast<CUdeviceptr>(d.p);
    volume.srcPitch = volume.dstPitch = volume.srcHeight = volume.dstHeight = 1024;
    volume.WidthInBytes = volume.Height = 1024;
    for (const std::size_t depth : {1, 3}) {
        volume.Depth = depth;
        const auto with = [&](auto CUDA_MEMCPY3D::*field, auto value) {
            auto changed = volume;
            changed.*field = value;
            std::printf("%d\n", cuMemcpy3D(&changed));
        };
        with(&CUDA_MEMCPY3D::srcY, 16);
        with(&CUDA_MEMCPY3D::dstY, 16);
        with(&CUDA_MEMCPY3D::srcHeight, 10);
        with(&CUDA_MEMCPY3D::dstHeight, 10);
        with(&CUDA_MEMCPY3D::dstZ, 4);
        auto nowhere = volume;
        nowhere.srcHost = nullptr, nowhere.srcZ = 1;
        std::printf("%d\n", cuMemcpy3D(&nowhere));
    }
    CHECK(cudaMemcpy(got.data(), d.p, n, cudaMemcpyDeviceToHost));
    WANT(std::all_of(got.begin(), got.end(), [](auto byte) { return byte == 7; }));
}

constexpr Case cases[] = {
    {"rows", rows},       {"wide", wide},      {"volumes", volumes}, {"order", order}, {"per_thread", per_thread},
    {"threads", threads}, {"refused", refused}};

int main(int argc, char** argv) { return run_case(cases, argc, argv); }
