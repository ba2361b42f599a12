// SPDX-License-Identifier: MIT
// Pools in other processes: the pool is handed over as a file, each of its allocations by where it lies in there.
#include <fcntl.h>

#include <cstring>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/pending_frees.h"
#include "toolchain/softgpu/driver/memory/pool.h"

namespace hpe::soft {
namespace {

// The layout of CUmemPoolPtrExportData.
struct Exported {
    std::uint64_t tag = 0;
    std::uint64_t offset = 0, size = 0;
};
constexpr std::uint64_t exported_tag = 0x7274706c6f6f70;
static_assert(sizeof(Exported) <= sizeof(CUmemPoolPtrExportData));

}  // namespace

CUresult api::cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle, CUmemAllocationHandleType type,
                                               unsigned long long flags) {
    require(out != nullptr && flags == 0);
    const auto pool = pool_of(handle);
    require(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && pool->shareable && !pool->file);
    DeviceMemory& memory = pool->device.memory;
    require(memory.open(), CUDA_ERROR_OUT_OF_MEMORY);
    const int file = fcntl(memory.file(), F_DUPFD_CLOEXEC, 0);
    require(file >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    ShareableLabel label;
    label.kind = ShareableLabel::Kind::Pool;
    label.device = pool->device.ordinal;
    label.bytes = memory.file_bytes();
    label_file(file, label);
    std::memcpy(out, &file, sizeof file);
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* given, CUmemAllocationHandleType type,
                                                 unsigned long long flags) {
    require(out != nullptr && flags == 0 && is_shareable_type(type));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return not_supported("cuMemPoolImportFromShareableHandle of anything but a file descriptor");
    const auto number = static_cast<int>(reinterpret_cast<std::intptr_t>(given));
    const ShareableLabel label = label_of(number, ShareableLabel::Kind::Pool);
    auto pool = std::make_shared<MemoryPool>(device_at(label.device),
                                             std::make_unique<OwnedFile>(fcntl(number, F_DUPFD_CLOEXEC, 0)));
    *out = pool->handle();
    driver().pools.add(std::move(pool));
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr pointer) {
    require(out != nullptr);
    const AllocationRef a = driver().addresses.find(pointer);
    require(a && a->address == pointer && a->kind == Kind::Pool && a->pool->shareable && !free_is_pending(*a));
    const Exported exported{exported_tag, a->offset, a->size};
    *out = {};
    std::memcpy(out, &exported, sizeof exported);
    return CUDA_SUCCESS;
}

CUresult api::cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
    require(out != nullptr && data != nullptr);
    const auto pool = pool_of(handle);
    Exported exported;
    std::memcpy(static_cast<void*>(&exported), data, sizeof exported);
    require(pool->file && exported.tag == exported_tag && exported.size > 0);
    const ShareableLabel label = label_of(pool->file->number(), ShareableLabel::Kind::Pool);
    require(exported.offset < label.bytes && exported.size <= label.bytes - exported.offset);
    auto view = std::make_shared<FileView>(pool->file->number(), exported.offset, exported.size);
    auto a = std::make_shared<Allocation>();
    a->size = exported.size;
    a->kind = Kind::Pool;
    a->context = &current();
    a->device = &pool->device;
    a->pool = pool;
    a->bytes = view->bytes();
    a->backing = std::move(view);
    a->imported = true;
    a->reservation_size = round_up(exported.offset % page_2m + exported.size, page_2m);
    a->reservation = driver().addresses.reserve(a->reservation_size, page_2m);
    require(a->reservation != 0, CUDA_ERROR_OUT_OF_MEMORY);
    a->address = a->reservation + exported.offset % page_2m;
    *out = a->address;
    driver().addresses.add(std::move(a));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
