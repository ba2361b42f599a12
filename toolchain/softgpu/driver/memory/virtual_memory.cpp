// SPDX-License-Identifier: MIT
// Virtual memory management: address ranges, physical memory, and mappings of one onto the other.
#include "toolchain/softgpu/driver/memory/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/shareable.h"

namespace hpe::soft {

// Lives as long as a handle or a mapping of it does. Memory that other processes may be given is a file of its own; the
// process that made it has it counted among what its device holds.
struct PhysicalMemory final : Backing {
    PhysicalMemory(Device& owner, std::uint64_t wanted, bool shareable) : device(owner), size(wanted), counted(true) {
        require(device.memory.open() && device.memory.allocate(size, offset), CUDA_ERROR_OUT_OF_MEMORY);
        bytes = device.memory.view(offset);
        if (!shareable) return;
        try {
            file = std::make_unique<OwnedFile>(memfd_create("soft-device-share", MFD_CLOEXEC));
            ShareableLabel label;
            label.device = device.ordinal;
            label.bytes = size;
            label_file(file->number(), label);
            view = std::make_unique<FileView>(file->number(), 0, size);
            bytes = view->bytes();
        } catch (const Error&) {
            device.memory.release(offset, size);
            throw;
        }
    }
    PhysicalMemory(Device& owner, std::uint64_t imported_size, std::unique_ptr<OwnedFile> imported)
        : device(owner), size(imported_size), counted(false), file(std::move(imported)) {
        view = std::make_unique<FileView>(file->number(), 0, size);
        bytes = view->bytes();
    }
    ~PhysicalMemory() override {
        if (counted) device.memory.release(offset, size);
    }

    Device& device;
    const std::uint64_t size;
    const bool counted;
    std::uint64_t offset = 0;
    std::byte* bytes = nullptr;
    std::unique_ptr<OwnedFile> file;  // null: not for other processes
    std::unique_ptr<FileView> view;
    CUmemAllocationProp properties{};
    unsigned handles = 1;  // how often cuMemRelease may be called. Guarded by the mutex below
};

namespace {

struct Ranges {
    std::mutex mutex;
    std::map<std::uint64_t, std::uint64_t> reserved;  // address -> bytes
};
// One lock for everything here: the calls are rare, and each is a change of several tables that must not be torn.
Ranges& ranges() {
    static auto* all = new Ranges;
    return *all;
}

// With the lock held.
bool find_range(std::uint64_t address, VirtualRange& out) {
    auto at = ranges().reserved.upper_bound(address);
    if (at == ranges().reserved.begin()) return false;
    --at;
    if (address - at->first >= at->second) return false;
    out = {at->first, at->second};
    return true;
}

std::shared_ptr<PhysicalMemory> physical_of(CUmemGenericAllocationHandle handle) {
    auto memory = driver().physical.find(reinterpret_cast<const void*>(handle));
    require(memory != nullptr);
    return memory;
}

Device& device_of(const CUmemAllocationProp* prop) {
    require(prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        require(prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
        fail(not_supported("cuMemCreate of host memory"));
    }
    return device_at(prop->location.id);
}

// The mappings that fill [address, address + bytes) exactly, from end to end. With the lock held.
std::vector<AllocationRef> mappings(std::uint64_t address, std::uint64_t bytes) {
    require(bytes > 0 && address + bytes > address);
    std::vector<AllocationRef> found;
    for (std::uint64_t at = address; at < address + bytes; at = found.back()->end()) {
        found.push_back(driver().addresses.find(at));
        require(found.back() && found.back()->kind == Kind::Virtual && found.back()->address == at);
    }
    require(found.back()->end() == address + bytes);
    return found;
}

// What holds the address, or else the first behind it. With the lock held.
AllocationRef first_from(std::uint64_t address) {
    AllocationRef there = driver().addresses.find(address);
    return there ? there : driver().addresses.next(address);
}

}  // namespace

bool virtual_range_of(std::uint64_t address, VirtualRange& out) {
    const std::lock_guard lock(ranges().mutex);
    return find_range(address, out);
}

CUresult api::cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr hint,
                                  unsigned long long flags) {
    require(ptr != nullptr && size > 0 && flags == 0 && (alignment & (alignment - 1)) == 0);
    require(size % page_2m == 0);
    const std::uint64_t aligned = std::max<std::uint64_t>(alignment, page_2m);
    require(size <= (std::uint64_t{1} << 46) && aligned <= (std::uint64_t{1} << 46), CUDA_ERROR_OUT_OF_MEMORY);
    const std::lock_guard lock(ranges().mutex);
    const std::uint64_t address = driver().addresses.reserve(size, aligned, hint);
    require(address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    ranges().reserved.emplace(address, size);
    *ptr = address;
    return CUDA_SUCCESS;
}

CUresult api::cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    const std::lock_guard lock(ranges().mutex);
    const auto at = ranges().reserved.find(ptr);
    require(at != ranges().reserved.end() && at->second == size);
    const AllocationRef mapped = driver().addresses.next(ptr);
    require(!mapped || mapped->address >= ptr + size);
    ranges().reserved.erase(at);
    driver().addresses.unreserve(ptr, size);
    return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                            CUmemAllocationGranularity_flags option) {
    require(granularity != nullptr);
    require(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    device_of(prop);
    *granularity = page_2m;
    return CUDA_SUCCESS;
}

CUresult api::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                          unsigned long long flags) {
    require(handle != nullptr && flags == 0 && size > 0 && size % page_2m == 0);
    Device& device = device_of(prop);
    const bool shareable = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (!shareable && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return not_supported("cuMemCreate of memory to export otherwise than as a file descriptor");
    if (prop->allocFlags.usage != 0) return not_supported("cuMemCreate for sparse arrays or decompression");
    auto memory = std::make_shared<PhysicalMemory>(device, size, shareable);
    memory->properties = *prop;
    // Asked for, but there is no such thing here; programs are told to look at what they got.
    memory->properties.allocFlags.compressionType = 0;
    memory->properties.allocFlags.gpuDirectRDMACapable = 0;
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(memory.get());
    driver().physical.add(std::move(memory));
    return CUDA_SUCCESS;
}

CUresult api::cuMemRelease(CUmemGenericAllocationHandle handle) {
    const std::lock_guard lock(ranges().mutex);
    const auto memory = physical_of(handle);
    if (--memory->handles == 0) driver().physical.remove(memory.get());
    return CUDA_SUCCESS;
}

CUresult api::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
    require(handle != nullptr && addr != nullptr);
    const std::lock_guard lock(ranges().mutex);
    const AllocationRef mapping = driver().addresses.find(reinterpret_cast<std::uint64_t>(addr));
    require(mapping && mapping->kind == Kind::Virtual);
    const auto memory = std::static_pointer_cast<PhysicalMemory>(mapping->backing);
    if (memory->handles++ == 0) driver().physical.add(memory);
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(memory.get());
    return CUDA_SUCCESS;
}

CUresult api::cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags) {
    require(out != nullptr && flags == 0);
    const auto memory = physical_of(handle);
    // Only who made it passes it on.
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && memory->file != nullptr && memory->counted);
    const int file = memory->file->duplicate();
    std::memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
}

// Of memory that is a file, whose bytes another device would reach by it.
CUresult api::cuMemGetHandleForAddressRange(void* out, CUdeviceptr ptr, size_t size, CUmemRangeHandleType type,
                                            unsigned long long flags) {
    require(out != nullptr && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags == 0);
    const std::lock_guard lock(ranges().mutex);
    const auto mapped = mappings(ptr, size);
    const auto memory = std::static_pointer_cast<PhysicalMemory>(mapped.front()->backing);
    if (mapped.size() != 1 || memory->file == nullptr)
        return not_supported("cuMemGetHandleForAddressRange of anything but one mapping of shareable memory");
    const int file = memory->file->duplicate();
    std::memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
}

CUresult api::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* given,
                                             CUmemAllocationHandleType type) {
    require(handle != nullptr && is_shareable_type(type));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return not_supported("cuMemImportFromShareableHandle of anything but a file descriptor");
    const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
    const ShareableLabel label = label_of(number, ShareableLabel::Kind::Physical);
    Device& device = device_at(label.device);
    auto memory = std::make_shared<PhysicalMemory>(device, label.bytes,
                                                   std::make_unique<OwnedFile>(fcntl(number, F_DUPFD_CLOEXEC, 0)));
    memory->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory->properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.ordinal};
    *handle = reinterpret_cast<CUmemGenericAllocationHandle>(memory.get());
    driver().physical.add(std::move(memory));
    return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
    require(prop != nullptr);
    *prop = physical_of(handle)->properties;
    return CUDA_SUCCESS;
}

CUresult api::cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
    require(flags == 0 && size > 0 && ptr % page_2m == 0);
    require(offset == 0 && size % page_2m == 0, CUDA_ERROR_NOT_SUPPORTED);
    const std::lock_guard lock(ranges().mutex);
    const auto memory = physical_of(handle);
    require(size <= memory->size, CUDA_ERROR_NOT_SUPPORTED);
    VirtualRange range;
    require(find_range(ptr, range) && size <= range.size - (ptr - range.address));
    auto a = std::make_shared<Allocation>();
    a->address = ptr;
    a->size = size;
    a->kind = Kind::Virtual;
    a->bytes = memory->bytes;
    a->device = &memory->device;
    a->offset = memory->offset;
    a->reservation = range.address;
    a->reservation_size = range.size;
    a->backing = memory;
    a->shareable = memory->file != nullptr;
    require(driver().addresses.add(std::move(a)));
    return CUDA_SUCCESS;
}

CUresult api::cuMemUnmap(CUdeviceptr ptr, size_t size) {
    const std::lock_guard lock(ranges().mutex);
    VirtualRange range;
    require(size > 0 && find_range(ptr, range) && size <= range.size - (ptr - range.address));
    // Holes are no error (seen on an H200); parts of mappings are.
    std::vector<AllocationRef> all;
    for (AllocationRef next = first_from(ptr); next && next->address < ptr + size; next = first_from(next->end())) {
        require(next->kind == Kind::Virtual && next->address >= ptr && next->end() <= ptr + size);
        all.push_back(next);
    }
    for (const AllocationRef& mapping : all) driver().addresses.remove(mapping->address);
    return CUDA_SUCCESS;
}

CUresult api::cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
    require(desc != nullptr && count > 0);
    const std::lock_guard lock(ranges().mutex);
    const auto mapped = mappings(ptr, size);
    for (size_t i = 0; i < count; ++i) {
        require(desc[i].location.type != CU_MEM_LOCATION_TYPE_INVALID);
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return not_supported("cuMemSetAccess for the host to device memory");
        const Device& device = device_at(desc[i].location.id);
        require(desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        for (const AllocationRef& mapping : mapped)
            require(mapping->device == &device || driver().options.peer, CUDA_ERROR_INVALID_DEVICE);
    }
    for (const AllocationRef& mapping : mapped)
        driver().addresses.change(mapping->address, [&](Allocation& a) {
            for (size_t i = 0; i < count; ++i) {
                const int device = desc[i].location.id;
                a.access.erase(device);
                a.access_read.erase(device);
                if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) a.access.insert(device);
                if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) a.access_read.insert(device);
            }
        });
    return CUDA_SUCCESS;
}

CUresult api::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
    require(flags != nullptr && location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
    const int device = device_at(location->id).ordinal;
    const AllocationRef mapping = driver().addresses.find(ptr);
    require(mapping && mapping->kind == Kind::Virtual);
    if (mapping->access.contains(device))
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    else
        *flags = mapping->access_read.contains(device) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
