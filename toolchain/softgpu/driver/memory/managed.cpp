// SPDX-License-Identifier: MIT
// Managed memory: plain memory of the process that kernels reach too, so nothing ever migrates. Advice and prefetches
// are checked, remembered and reported.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

constexpr int cpu = -1, nowhere = -2;  // as CU_DEVICE_CPU and CU_DEVICE_INVALID
static_assert(CU_DEVICE_CPU == cpu && CU_DEVICE_INVALID == nowhere);

void check_device(int place) {
    if (place != cpu) device_at(place);
}

int place_of_location(const CUmemLocation& location) {
    switch (location.type) {
        case CU_MEM_LOCATION_TYPE_DEVICE: device_at(location.id); return location.id;
        case CU_MEM_LOCATION_TYPE_HOST:
        case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: return cpu;
        case CU_MEM_LOCATION_TYPE_HOST_NUMA: require(location.id >= 0); return cpu;
        default: fail(CUDA_ERROR_INVALID_VALUE);
    }
}

// The allocations of a range, which must be managed memory from end to end.
std::vector<AllocationRef> managed_range(CUdeviceptr address, std::size_t bytes) {
    require(bytes > 0 && address + bytes > address);
    std::vector<AllocationRef> found;
    for (CUdeviceptr at = address; at < address + bytes; at = found.back()->address + found.back()->reserved) {
        found.push_back(driver().addresses.find(at));
        require(found.back() && found.back()->kind == Kind::Managed);
    }
    return found;
}

template <class Change>
void change_range(CUdeviceptr address, std::size_t bytes, Change change) {
    for (const AllocationRef& a : managed_range(address, bytes)) driver().addresses.change(a->address, change);
}

CUresult advise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice, int place) {
    switch (advice) {
        case CU_MEM_ADVISE_SET_READ_MOSTLY:
        case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
            change_range(address, bytes,
                         [&](Allocation& a) { a.managed_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY; });
            break;
        case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
            change_range(address, bytes, [&](Allocation& a) {
                a.managed_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? place : nowhere;
            });
            break;
        case CU_MEM_ADVISE_SET_ACCESSED_BY:
            change_range(address, bytes, [&](Allocation& a) { a.accessed_by.insert(place); });
            break;
        case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
            change_range(address, bytes, [&](Allocation& a) { a.accessed_by.erase(place); });
            break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

// Some advice is about no place in particular, and then the place is not looked at.
bool needs_place(CUmem_advise advice) {
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult prefetch(CUdeviceptr address, std::size_t bytes, int place, CUstream handle) {
    const auto stream = stream_of(handle);
    forbid_capturing(*stream);
    change_range(address, bytes, [&](Allocation& a) { a.prefetch_location = place; });
    return CUDA_SUCCESS;
}

void put_int(void* data, std::size_t size, int value) {
    require(size == sizeof value);
    std::memcpy(data, &value, sizeof value);
}

int common(const std::vector<AllocationRef>& range, int Allocation::*field) {
    const int value = (*range.front()).*field;
    for (const AllocationRef& a : range)
        if ((*a).*field != value) return nowhere;
    return value;
}

int type_of_place(int place) {
    if (place == nowhere) return CU_MEM_LOCATION_TYPE_INVALID;
    return place == cpu ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
}

void put_accessed_by(void* data, std::size_t size, const std::vector<AllocationRef>& range) {
    require(size > 0 && size % sizeof(int) == 0);
    std::vector<int> places(size / sizeof(int), nowhere);
    std::size_t used = 0;
    for (const int place : range.front()->accessed_by) {
        bool everywhere = true;
        for (const AllocationRef& a : range) everywhere &= a->accessed_by.contains(place);
        if (everywhere && used < places.size()) places[used++] = place;
    }
    std::memcpy(data, places.data(), size);
}

void get(void* data, std::size_t size, CUmem_range_attribute attribute, const std::vector<AllocationRef>& range) {
    require(data != nullptr);
    switch (attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
            return put_int(data, size, common(range, &Allocation::managed_read_mostly) == 1);
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
            return put_int(data, size, common(range, &Allocation::managed_location));
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
            return put_int(data, size, common(range, &Allocation::prefetch_location));
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
            return put_int(data, size, type_of_place(common(range, &Allocation::managed_location)));
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
            return put_int(data, size, type_of_place(common(range, &Allocation::prefetch_location)));
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: return put_accessed_by(data, size, range);
    }
    fail(CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

CUresult api::cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned flags) {
    require(dptr != nullptr && bytesize > 0);
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
    Context& context = current();
    forbid_unsafe_call();
    const std::uint64_t mapped = round_up(bytesize, static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)));
    require(mapped >= bytesize, CUDA_ERROR_OUT_OF_MEMORY);
    void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(p != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    auto a = std::make_shared<Allocation>();
    a->address = reinterpret_cast<std::uint64_t>(p);
    a->size = bytesize;
    a->kind = Kind::Managed;
    a->bytes = static_cast<std::byte*>(p);
    a->context = &context;
    a->device = &context.device();
    a->flags = flags;
    a->reserved = mapped;
    if (!driver().addresses.add(a)) {  // the application unmapped registered memory that lay here
        munmap(p, mapped);
        fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *dptr = a->address;
    return CUDA_SUCCESS;
}

CUresult api::cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
    check_device(dstDevice);
    return prefetch(devPtr, count, dstDevice, hStream);
}
CUresult api::cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned flags,
                                    CUstream hStream) {
    require(flags == 0);
    return prefetch(devPtr, count, place_of_location(location), hStream);
}

CUresult api::cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* locations,
                                      size_t* firsts, size_t locationCount, unsigned long long flags,
                                      CUstream hStream) {
    require(dptrs && sizes && count > 0 && locations && firsts && locationCount > 0 && locationCount <= count);
    require(flags == 0 && firsts[0] == 0 && hStream != nullptr && hStream != CU_STREAM_LEGACY);
    for (size_t i = 0; i < count; ++i) managed_range(dptrs[i], sizes[i]);
    for (size_t i = 0, place = 0; i < count; ++i) {
        while (place + 1 < locationCount && firsts[place + 1] <= i) ++place;
        const CUresult result = prefetch(dptrs[i], sizes[i], place_of_location(locations[place]), hStream);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult api::cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    current();
    if (needs_place(advice)) check_device(device);
    return advise(devPtr, count, advice, device);
}
CUresult api::cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
    current();
    if (!needs_place(advice)) return advise(devPtr, count, advice, nowhere);
    // A prefetch to a device that is not there is its error, advice about one is not.
    require(location.type != CU_MEM_LOCATION_TYPE_DEVICE || is_device(location.id));
    return advise(devPtr, count, advice, place_of_location(location));
}

CUresult api::cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                     size_t count) {
    current();
    get(data, dataSize, attribute, managed_range(devPtr, count));
    return CUDA_SUCCESS;
}

CUresult api::cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                      size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    require(data && dataSizes && attributes && numAttributes > 0);
    current();
    const auto range = managed_range(devPtr, count);
    for (size_t i = 0; i < numAttributes; ++i) get(data[i], dataSizes[i], attributes[i], range);
    return CUDA_SUCCESS;
}

// Only devices that cannot share managed memory with a running host look at this.
CUresult api::cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned flags) {
    const auto stream = stream_of(hStream);
    require(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE);
    require(flags != CU_MEM_ATTACH_SINGLE || stream->kind == Stream::Kind::Created);
    forbid_capturing(*stream);
    const AllocationRef a = driver().addresses.find(dptr);
    require(a && a->kind == Kind::Managed && a->address == dptr && (length == 0 || length == a->size));
    driver().addresses.change(dptr, [flags](Allocation& allocation) { allocation.flags = flags; });
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
