// SPDX-License-Identifier: MIT
// Physical memory that is mapped once, twice, moved to another address, and given back (cuMemMap), with CPU accesses
// and kernels in between. A mapping or an access that failed for good must not be there, and what else is must hold its
// bytes.
#include "tried.h"

#include <cuda.h>

namespace {

constexpr std::size_t kMapped = std::size_t{2} << 20;
// Few: where a failure leaves no host copy, each access of the CPU is a transfer.
constexpr std::size_t kWords = 3000;

// The driver's calls among the runtime's.
template <class Call>
bool driver_tried(const char* what, Call&& call) {
    return tried(what, [&] { return static_cast<cudaError_t>(call()); });
}
#define DRIVER_TRIED(...) driver_tried(#__VA_ARGS__, [&] { return __VA_ARGS__; })

CUmemAllocationProp properties() {
    CUmemAllocationProp memory{};
    memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    memory.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return memory;
}

class Place {
public:
    Place(CUdeviceptr address, CUmemGenericAllocationHandle handle) : address_(address), handle_(handle) {
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        mapped_ = DRIVER_TRIED(cuMemMap(address_, kMapped, 0, handle_, 0));
        CUmemGenericAllocationHandle there = 0;
        if (!mapped_ && cuMemRetainAllocationHandle(&there, reinterpret_cast<void*>(address_)) == CUDA_SUCCESS) {
            ++wrong_arrays;
            std::printf("WRONG: it is mapped, though the call failed\n");
        }
        usable_ = mapped_ && DRIVER_TRIED(cuMemSetAccess(address_, kMapped, &access, 1));
    }
    bool usable() const { return usable_; }
    Word* data() const { return usable_ ? reinterpret_cast<Word*>(address_) : nullptr; }
    bool end() {
        // Kernels may still use it.
        if (mapped_ && TRIED(cudaDeviceSynchronize()) && DRIVER_TRIED(cuMemUnmap(address_, kMapped)))
            mapped_ = usable_ = false;
        return !mapped_;
    }

private:
    CUdeviceptr address_;
    CUmemGenericAllocationHandle handle_;
    bool mapped_, usable_;
};

void mapped_twice(CUdeviceptr range, CUmemGenericAllocationHandle handle, Array& other) {
    Array array("mapped twice", kWords);
    Place first(range, handle);
    array.data = first.data();
    if (array.data == nullptr) return;
    if (!TRIED(cudaMemset(array.data, 0, array.bytes()))) {
        first.end();
        return;
    }
    array.write(0, kWords, 5, 3);
    {
        // What the CPU wrote there is on the device from now on.
        Place second(range + kMapped, handle);
        if (second.usable()) {
            Array same("the same", kWords);
            same.data = second.data();
            same.model = array.model;
            same.check("as by the first mapping", 0, kWords, 100);
        }
        array.check("beside a second mapping", 0, kWords, 100);
        second.end();
    }
    launched(array, other, 11);
    array.check("after the second mapping", 0, kWords, 100);
    first.end();
}

void moved(CUdeviceptr range, CUmemGenericAllocationHandle handle, Array& other) {
    Array array("moved", kWords);
    Place first(range, handle);
    array.data = first.data();
    if (array.data == nullptr) return;
    array.write(0, kWords, 5);
    launched(array, other, 7);
    array.check("after a kernel", 0, kWords, 7);
    array.write(100, 500, 9);
    if (!first.end()) return array.finish();
    Place second(range + kMapped, handle);
    array.data = second.data();
    launched(array, other, 13);
    array.finish();
    second.end();
}

}  // namespace

int main(int argc, char** argv) {
    arguments(argc, argv);
    Array other("other", kWords);
    if (!TRIED(cudaFree(nullptr)) || !other.allocate()) return verdict();
    other.write(0, kWords, 3);
    const auto memory = properties();
    for (const auto run : {moved, mapped_twice, moved}) {
        CUdeviceptr range = 0;  // its own: what could not be unmapped stays
        CUmemGenericAllocationHandle handle = 0;
        if (!DRIVER_TRIED(cuMemAddressReserve(&range, 2 * kMapped, 0, 0, 0))) continue;
        if (DRIVER_TRIED(cuMemCreate(&handle, kMapped, &memory, 0))) {
            run(range, handle, other);
            DRIVER_TRIED(cuMemRelease(handle));
        }
        DRIVER_TRIED(cuMemAddressFree(range, 2 * kMapped));
    }
    other.finish();
    reset_or_finish(kWords, {&other});
    return verdict();
}
