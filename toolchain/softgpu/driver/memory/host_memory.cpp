// SPDX-License-Identifier: MIT
// Pinned host memory: allocated by the driver, or the application's own and registered. Device and host use one
// address for it.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace hpe::soft {
namespace {

std::uint64_t page_size() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

CUresult allocate(void** out, std::size_t bytes, unsigned flags) {
    require(out != nullptr);
    require((flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)) == 0);
    Context& context = current();
    forbid_unsafe_call();
    if (bytes == 0) {
        *out = nullptr;
        return CUDA_SUCCESS;
    }
    const std::uint64_t mapped = round_up(bytes, page_size());
    require(mapped >= bytes, CUDA_ERROR_OUT_OF_MEMORY);
    void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(p != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    auto a = std::make_shared<Allocation>();
    a->address = reinterpret_cast<std::uint64_t>(p);
    a->size = bytes;
    a->kind = Kind::Pinned;
    a->bytes = static_cast<std::byte*>(p);
    a->context = &context;
    a->device = &context.device();
    a->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;  // in one address space all of it is
    a->reserved = mapped;
    if (!driver().addresses.add(std::move(a))) {  // the application unmapped registered memory that lay here
        munmap(p, mapped);
        fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *out = p;
    return CUDA_SUCCESS;
}

// As pinning does: makes every page present, and finds out whether it may be used so.
bool populate(std::uint64_t address, std::uint64_t bytes, bool read_only) {
    const std::uint64_t page = page_size(), start = address & ~(page - 1);
    const std::uint64_t length = round_up(address + bytes - start, page);
    const int advice = read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    if (madvise(nullptr, 0, advice) != 0) {  // kernels before 5.14: at least something must be mapped there
        std::vector<unsigned char> present(length / page);
        return mincore(pointer(start), length, present.data()) == 0;
    }
    int result = 0;
    do {
        result = madvise(pointer(start), length, advice);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result == 0;
}

AllocationRef host_allocation(const void* p) {
    const AllocationRef allocation = driver().addresses.find(reinterpret_cast<std::uint64_t>(p));
    require(allocation && (allocation->kind == Kind::Pinned || allocation->kind == Kind::Registered));
    return allocation;
}

// Work that uses the memory may be in flight, in any context: host memory is everybody's.
void end(const Allocation& allocation, Context& context) {
    synchronize(*allocation.context);
    if (allocation.context != &context) synchronize(context);
    const auto removed = driver().addresses.remove(allocation.address);
    require(removed != nullptr);
    end_allocation(*removed);
}

CUresult register_memory(void* p, std::size_t bytes, unsigned flags) {
    require(p != nullptr && bytes > 0);
    constexpr unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    require((flags & ~known) == 0);
    Context& context = current();
    require((flags & CU_MEMHOSTREGISTER_IOMEMORY) == 0);  // no memory here is a third party's
    forbid_unsafe_call();
    const auto address = reinterpret_cast<std::uint64_t>(p);
    require(bytes <= (std::uint64_t{1} << 47) && address <= (std::uint64_t{1} << 47) - bytes);
    const auto overlaps = [&] {
        AllocationRef there = driver().addresses.find(address);
        if (!there) there = driver().addresses.next(address);
        return there && there->address < address + bytes ? there : nullptr;
    };
    const auto refuse = [](const AllocationRef& there) {
        require(there->kind != Kind::Registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        fail(CUDA_ERROR_INVALID_VALUE);
    };
    if (const AllocationRef there = overlaps()) refuse(there);
    require(populate(address, bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY));
    auto a = std::make_shared<Allocation>();
    a->address = address;
    a->size = bytes;
    a->kind = Kind::Registered;
    a->bytes = static_cast<std::byte*>(p);
    a->context = &context;
    a->device = &context.device();
    a->flags = flags;
    a->read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
    require(driver().addresses.add(std::move(a)), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemHostAlloc(void** pp, size_t bytesize, unsigned flags) { return allocate(pp, bytesize, flags); }
CUresult api::cuMemAllocHost_v2(void** pp, size_t bytesize) { return allocate(pp, bytesize, 0); }
CUresult api::cuMemAllocHost(void** pp, unsigned bytesize) { return allocate(pp, bytesize, 0); }

CUresult api::cuMemFreeHost(void* p) {
    if (!p) {
        current();
        return CUDA_SUCCESS;
    }
    forbid_unsafe_call();
    const AllocationRef allocation = host_allocation(p);
    // Its own context's: none need be current.
    Context& context = current_or(*allocation->context);
    require(allocation->kind == Kind::Pinned && allocation->bytes == p);
    end(*allocation, context);
    return CUDA_SUCCESS;
}

CUresult api::cuMemHostRegister_v2(void* p, size_t bytesize, unsigned flags) {
    return register_memory(p, bytesize, flags);
}
CUresult api::cuMemHostRegister(void* p, size_t bytesize, unsigned flags) {
    return register_memory(p, bytesize, flags);
}

CUresult api::cuMemHostUnregister(void* p) {
    require(p != nullptr);
    forbid_unsafe_call();
    const AllocationRef allocation = driver().addresses.find(reinterpret_cast<std::uint64_t>(p));
    require(allocation != nullptr, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    Context& context = current_or(*allocation->context);
    require(allocation->kind == Kind::Registered && allocation->bytes == p);
    end(*allocation, context);
    return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned flags) {
    require(pdptr != nullptr && p != nullptr && flags == 0);
    current();
    host_allocation(p);
    *pdptr = reinterpret_cast<std::uint64_t>(p);
    return CUDA_SUCCESS;
}

CUresult api::cuMemHostGetFlags(unsigned* flags, void* p) {
    require(flags != nullptr && p != nullptr);
    current();
    *flags = host_allocation(p)->flags;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
