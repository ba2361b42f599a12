// SPDX-License-Identifier: MIT
// Interprocess handles of memory and events. A handle names an open file of the process that exported it; another
// process of the same user opens that file through /proc and maps the same bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/device.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/event.h"
#include "toolchain/softgpu/driver/stream/shared_event.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

constexpr std::uint64_t memory_tag = 0x6d656d20656f7068, event_tag = 0x74766520656f7068;

// The layout of both kinds of handle.
struct Handle {
    std::uint64_t tag = 0;
    std::uint64_t started = 0;  // when the process did, so that a later one with its number is not taken for it
    std::int32_t process = 0, file = -1;
    std::int32_t device = 0, pad = 0;
    std::uint64_t offset = 0, size = 0;
    bool operator==(const Handle&) const = default;
};
static_assert(sizeof(Handle) <= CU_IPC_HANDLE_SIZE);

template <class Cuda>
Cuda pack(const Handle& handle) {
    Cuda out{};
    std::memcpy(&out, &handle, sizeof handle);
    return out;
}
template <class Cuda>
Handle unpack(const Cuda& cuda, std::uint64_t tag, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    Handle handle;
    std::memcpy(static_cast<void*>(&handle), &cuda, sizeof handle);
    require(handle.tag == tag && handle.process > 0, otherwise);
    return handle;
}

// In clock ticks since the machine started; 0: there is no such process.
std::uint64_t start_of(int process) {
    char path[64], text[1024];
    std::snprintf(path, sizeof path, "/proc/%d/stat", process);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = 0;
    // The name, in parentheses, may hold anything; the start is the 20th number behind it.
    const char* at = std::strrchr(text, ')');
    for (int field = 0; at != nullptr && field < 20; ++field) at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

Handle own_handle(std::uint64_t tag, int file) {
    Handle handle;
    handle.tag = tag;
    handle.process = getpid();
    handle.started = start_of(handle.process);
    handle.file = file;
    require(handle.started != 0, CUDA_ERROR_NOT_SUPPORTED);
    return handle;
}

int open_file_of(const Handle& handle) {
    require(start_of(handle.process) == handle.started);
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    require(file >= 0);
    return file;
}

// An opened allocation of another process, mapped.
struct Import final : Backing {
    Handle handle;
    unsigned long long context = 0;
    unsigned opened = 1;
    void* view = nullptr;
    std::size_t view_size = 0;
    ~Import() override {
        if (view != nullptr) munmap(view, view_size);
    }
    void end(const Allocation& a) override { driver().addresses.unreserve(a.reservation, a.reserved); }
};

std::mutex& import_mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
}

}  // namespace

CUresult api::cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
    require(out != nullptr);
    current();
    const AllocationRef a = driver().addresses.find(pointer);
    // Any address in the allocation stands for all of it.
    require(a && a->kind == Kind::Device && !a->module_variable && !a->imported);
    Handle handle = own_handle(memory_tag, a->device->memory.file());
    handle.device = a->device->ordinal;
    handle.offset = a->offset;
    handle.size = a->size;
    *out = pack<CUipcMemHandle>(handle);
    return CUDA_SUCCESS;
}

CUresult api::cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle cuda_handle, unsigned flags) {
    require(out != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    Context& context = current();
    const Handle handle = unpack(cuda_handle, memory_tag);
    require(handle.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    Device& device = device_at(handle.device);
    require(&device == &context.device() || driver().options.peer, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    const std::lock_guard lock(import_mutex());
    const auto known = driver().addresses.select([&](const Allocation& a) {
        const auto* import =
            a.imported && a.kind == Kind::Device ? static_cast<const Import*>(a.backing.get()) : nullptr;
        return import != nullptr && import->handle == handle && import->context == context.id();
    });
    if (!known.empty()) {
        static_cast<Import*>(known.front()->backing.get())->opened++;
        *out = known.front()->address;
        return CUDA_SUCCESS;
    }
    const int file = open_file_of(handle);
    auto import = std::make_shared<Import>();
    import->handle = handle;
    import->context = context.id();
    const std::uint64_t begin = handle.offset / host_page * host_page;
    import->view_size = round_up(handle.offset - begin + handle.size, host_page);
    struct stat status {};
    void* view = MAP_FAILED;
    if (fstat(file, &status) == 0 && begin + import->view_size <= static_cast<std::uint64_t>(status.st_size))
        view = mmap(nullptr, import->view_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(begin));
    close(file);
    require(view != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    madvise(view, import->view_size, MADV_DONTFORK);
    import->view = view;
    auto a = std::make_shared<Allocation>();
    a->size = handle.size;
    a->imported = true;
    a->context = &context;
    a->device = &device;
    a->reserved = round_up(handle.offset % page_2m + handle.size, page_2m);
    a->reservation = driver().addresses.reserve(a->reserved, page_2m);
    require(a->reservation != 0, CUDA_ERROR_OUT_OF_MEMORY);
    a->reservation_size = a->reserved;
    a->address = a->reservation + handle.offset % page_2m;
    a->bytes = static_cast<std::byte*>(view) + (handle.offset - begin);
    a->backing = std::move(import);
    *out = a->address;
    driver().addresses.add(std::move(a));
    return CUDA_SUCCESS;
}
CUresult api::cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
    return api::cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult api::cuIpcCloseMemHandle(CUdeviceptr pointer) {
    Context& context = current();
    {
        const std::lock_guard lock(import_mutex());
        const AllocationRef a = driver().addresses.find(pointer);
        require(a && a->imported && a->kind == Kind::Device && a->address == pointer);
        auto* import = static_cast<Import*>(a->backing.get());
        if (import->opened > 1) {
            import->opened--;
            return CUDA_SUCCESS;
        }
    }
    synchronize(context);
    const std::lock_guard lock(import_mutex());
    const auto removed = driver().addresses.remove(pointer);
    require(removed != nullptr && removed->imported);
    end_allocation(*removed);
    return CUDA_SUCCESS;
}

CUresult api::cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event_handle) {
    require(out != nullptr);
    const auto event = event_of(event_handle);
    require(event->shared != nullptr && !event->opened, CUDA_ERROR_INVALID_HANDLE);
    *out = pack<CUipcEventHandle>(own_handle(event_tag, event->shared->file()));
    return CUDA_SUCCESS;
}

CUresult api::cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle cuda_handle) {
    require(out != nullptr);
    Context& context = current();
    const Handle handle = unpack(cuda_handle, event_tag, CUDA_ERROR_MAP_FAILED);
    require(handle.process != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    auto event = std::make_shared<Event>(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    event->shared = SharedEvent::make(open_file_of(handle));
    event->opened = true;
    *out = event->handle();
    driver().events.add(std::move(event));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
