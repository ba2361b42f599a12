// SPDX-License-Identifier: MIT
// The kernel that copies allocations, on the soft device: every byte of theirs, and none between them.
#include "shim/transfer/across.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "shim/driver/driver.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

constexpr std::size_t kChunk = Allocations::kChunk;
using Bytes = std::vector<std::byte>;

unsigned launches = 0;
decltype(driver.cuLaunchKernel) true_launch = nullptr;
CUresult count_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, CUstream stream, void** parameters, void** extra) {
    ++launches;
    return true_launch(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

// A chunk of device memory, and pinned memory for what it holds.
class Chunk {
public:
    Chunk() {
        void* const libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        REQUIRE(cuInit(0) == CUDA_SUCCESS);
        REQUIRE(cuDevicePrimaryCtxRetain(&context_, 0) == CUDA_SUCCESS);
        REQUIRE(cuCtxSetCurrent(context_) == CUDA_SUCCESS);
        if (true_launch == nullptr) {
            REQUIRE(adopt_driver(libcuda));
            true_launch = std::exchange(driver.cuLaunchKernel, count_launch);
        }
        across::prepare(context_);
        REQUIRE(across::kernel_of(context_) != nullptr);
        REQUIRE(cuMemAlloc_v2(&device_, kChunk) == CUDA_SUCCESS);
        void* memory = nullptr;
        REQUIRE(cuMemHostAlloc(&memory, kChunk, 0) == CUDA_SUCCESS);
        host_ = static_cast<std::byte*>(memory);
        region_.base = device_;
        region_.size = kChunk;
        REQUIRE(region_.become_region(true));
    }
    ~Chunk() {
        cuMemFree_v2(device_);
        cuMemFreeHost(host_);
        std::free(region_.allocations);
    }
    Chunk(const Chunk&) = delete;
    Chunk& operator=(const Chunk&) = delete;

    void add(std::size_t offset, std::size_t bytes) { region_.allocations->add(offset, bytes); }
    // Launches for a copy each way of a range, which begins at a page.
    unsigned copied(std::size_t begin = 0, std::size_t bytes = kChunk) { return copied(begin, bytes, &region_); }
    unsigned copied_as_one(std::size_t begin, std::size_t bytes) { return copied(begin, bytes, nullptr); }

private:
    unsigned copied(std::size_t begin, std::size_t bytes, const Object* region) {
        const auto in_host = random(), in_device = random(), again = random();
        const across::Over over{region, across::kernel_of(context_)};
        std::memcpy(host_, in_host.data(), kChunk);
        write_device(in_device);
        launches = 0;
        REQUIRE(across::to_device(device_ + begin, host_ + begin, bytes, over, nullptr) == CUDA_SUCCESS);
        const auto one_way = launches;
        CHECK((device() == merged(in_device, in_host, begin, bytes, region) && host() == in_host));
        write_device(again);
        REQUIRE(across::to_host(host_ + begin, device_ + begin, bytes, over, nullptr) == CUDA_SUCCESS);
        CHECK((host() == merged(in_host, again, begin, bytes, region) && device() == again));
        CHECK(launches == 2 * one_way);
        return one_way;
    }
    Bytes random() {
        Bytes bytes(kChunk);
        for (std::size_t at = 0; at < kChunk; at += sizeof(std::uint64_t)) {
            const auto word = random_();
            std::memcpy(bytes.data() + at, &word, sizeof word);
        }
        return bytes;
    }
    static Bytes merged(Bytes to, const Bytes& from, std::size_t begin, std::size_t bytes, const Object* region) {
        const auto take = [&](std::size_t offset, std::size_t part) {
            std::memcpy(to.data() + offset, from.data() + offset, part);
            return true;
        };
        if (region != nullptr) {
            region->for_allocated(begin, bytes, take);
        } else {
            take(begin, bytes);
        }
        return to;
    }
    void write_device(const Bytes& bytes) { REQUIRE(cuMemcpyHtoD_v2(device_, bytes.data(), kChunk) == CUDA_SUCCESS); }
    Bytes device() const {
        Bytes bytes(kChunk);
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        REQUIRE(cuMemcpyDtoH_v2(bytes.data(), device_, kChunk) == CUDA_SUCCESS);
        return bytes;
    }
    Bytes host() const {
        REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
        return {host_, host_ + kChunk};
    }

    CUcontext context_ = nullptr;
    CUdeviceptr device_ = 0;
    std::byte* host_ = nullptr;
    Object region_;
    std::mt19937_64 random_{3};
};

}  // namespace

TEST_CASE("a chunk of equal allocations is one launch, whatever their size") {
    for (const std::size_t bytes : {1, 15, 16, 63, 255, 256, 257, 512, 1000, 4000, 8192, 8193, 16383, 16384, 16385}) {
        for (const std::size_t room : {(bytes + 255) / 256 * 256, (bytes + 511) / 512 * 512, (bytes / 512 + 3) * 512}) {
            Chunk chunk;
            for (std::size_t at = 0; at + room <= kChunk; at += room) chunk.add(at, bytes);
            INFO(bytes << " bytes, " << room << " apart");
            CHECK(chunk.copied() == 1);
            CHECK(chunk.copied(3 * kPage, kChunk / 2) == 1);
        }
    }
}

TEST_CASE("far apart, and none") {
    Chunk chunk;
    CHECK(chunk.copied() == 0);
    chunk.add(0, 300);
    chunk.add(kChunk - 512, 300);
    CHECK(chunk.copied() == 1);
    CHECK(chunk.copied(kPage, kPage) == 0);
}

TEST_CASE("without gaps") {
    Chunk chunk;
    CHECK(chunk.copied_as_one(0, kChunk) == 1);
    CHECK(chunk.copied_as_one(kPage, 50001) == 1);
    CHECK(chunk.copied_as_one(kPage, 1) == 1);
}

TEST_CASE("of sizes and distances that change, in as many launches as it takes") {
    Chunk chunk;
    std::size_t count = 0;
    for (std::size_t at = 0; at + 768 <= kChunk; at += 768, ++count) chunk.add(at, 257 + count % 2);
    CHECK(chunk.copied() == (count + 479) / 480);
}

TEST_CASE("random allocations, some of them equal") {
    std::mt19937 random(11);
    for (int round = 0; round < 30; ++round) {
        Chunk chunk;
        for (std::size_t at = 0; at < kChunk;) {
            const std::size_t bytes = 1 + random() % (random() % 4 == 0 ? 40000 : 1200);
            const auto room = (bytes + 255) / 256 * 256 + random() % 3 * 256;
            for (auto n = 1 + random() % (random() % 2 == 0 ? 2 : 300); n != 0 && at + room <= kChunk;
                 --n, at += room) {
                chunk.add(at, bytes);
            }
            at += random() % 4 * 256;
            if (at + room > kChunk) break;
        }
        CHECK(chunk.copied() != 0);
        chunk.copied(random() % 300 * kPage, (1 + random() % 200) * kPage);
    }
}
