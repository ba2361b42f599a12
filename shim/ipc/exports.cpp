// SPDX-License-Identifier: MIT
// The table, and what is known of the objects in it.
#include "shim/ipc/exports.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe::ipc {

namespace {

struct Exported {
    std::uintptr_t base = 0;
    std::uint32_t serial = 0;
    void* context = nullptr;
    CUipcMemHandle handle{};
    std::uint64_t id = 0;
    bool refused = false;        // the driver exports no such memory
    std::vector<int> peers;      // that have read it
    ExportEntry* own = nullptr;  // for the object's own addresses
};

constinit bool wanted = true;
constinit std::atomic<bool> any_exported{false};

// Never destroyed: messages may end after the process's own exit handlers.
struct Exports {
    Mutex mutex;
    ExportTable* table HPE_GUARDED_BY(mutex) = nullptr;
    pid_t owner HPE_GUARDED_BY(mutex) = 0;
    bool failed HPE_GUARDED_BY(mutex) = false;
    std::vector<Exported> objects HPE_GUARDED_BY(mutex);
};
Exports& exports() noexcept {
    static Exports& all = *new Exports;
    return all;
}

// A child of fork() has its parent's table, and no device.
bool open(Exports& all) noexcept HPE_REQUIRES(all.mutex) {
    if (all.table != nullptr || all.failed) return all.table != nullptr && all.owner == getpid();
    all.failed = true;
    all.owner = getpid();
    const int file = memfd_create(ExportTable::kName, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(ExportTable)) != 0) return false;
    void* const memory = ::mmap(nullptr, sizeof(ExportTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return false;
    all.table = static_cast<ExportTable*>(memory);
    all.failed = false;
    return true;
}

Exported* find(Exports& all, const Object& object) noexcept HPE_REQUIRES(all.mutex) {
    const auto found = std::find_if(all.objects.begin(), all.objects.end(), [&](const Exported& one) {
        return one.base == object.base && one.serial == object.serial();
    });
    return found != all.objects.end() ? &*found : nullptr;
}

Exported* find_or_export(Exports& all, const Object& object) noexcept HPE_REQUIRES(all.mutex) {
    if (Exported* const known = find(all, object)) return known;
    Exported one{object.base, object.serial(), object.context, {}, 0, true, {}, nullptr};
    {
        const Inside inside;
        const ContextScope scope(object.context);
        const CaptureRelaxed relaxed;
        one.refused =
            scope.result() != CUDA_SUCCESS || driver.cuIpcGetMemHandle(&one.handle, object.base) != CUDA_SUCCESS ||
            driver.cuPointerGetAttribute(&one.id, CU_POINTER_ATTRIBUTE_BUFFER_ID, object.base) != CUDA_SUCCESS;
    }
    all.objects.push_back(std::move(one));
    any_exported.store(true, std::memory_order_release);
    return &all.objects.back();
}

void begin_change(ExportEntry& entry) noexcept {
    entry.version.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
}
void end_change(ExportEntry& entry) noexcept { entry.version.fetch_add(1, std::memory_order_release); }

ExportEntry* enter(Exports& all, const Exported& object, std::uintptr_t begin, std::size_t bytes, std::size_t offset,
                   bool on_host) noexcept HPE_REQUIRES(all.mutex) {
    for (auto& entry : all.table->entries) {
        if (entry.end.load(std::memory_order_relaxed) != 0) continue;
        begin_change(entry);
        entry.offset.store(offset, std::memory_order_relaxed);
        entry.id.store(object.id, std::memory_order_relaxed);
        std::array<std::uint64_t, sizeof(CUipcMemHandle) / 8> words{};
        std::memcpy(words.data(), &object.handle, sizeof object.handle);
        for (std::size_t i = 0; i < words.size(); ++i) entry.handle[i].store(words[i], std::memory_order_relaxed);
        entry.on_host.store(on_host, std::memory_order_relaxed);
        entry.fetched.store(0, std::memory_order_relaxed);
        entry.begin.store(begin, std::memory_order_relaxed);
        entry.end.store(begin + bytes, std::memory_order_relaxed);
        end_change(entry);
        return &entry;
    }
    return nullptr;
}

void remove(ExportEntry& entry) noexcept {
    begin_change(entry);
    entry.begin.store(0, std::memory_order_relaxed);
    entry.end.store(0, std::memory_order_relaxed);
    end_change(entry);
}

void forget(Exports& all, const Exported& object) noexcept HPE_REQUIRES(all.mutex) {
    if (object.own != nullptr) remove(*object.own);
    if (object.refused) return;
    const auto count = all.table->ended.load(std::memory_order_relaxed);
    all.table->ended_ids[count % ExportTable::kEnded].store(object.id, std::memory_order_relaxed);
    all.table->ended.store(count + 1, std::memory_order_release);
}

template <class Which>
void forget_if(Which&& which) noexcept {
    if (!any_exported.load(std::memory_order_acquire)) return;
    auto& all = exports();
    const Locked lock(all.mutex);
    std::erase_if(all.objects, [&](const Exported& one) {
        all.mutex.assume_held();
        if (!which(one)) return false;
        forget(all, one);
        return true;
    });
}

}  // namespace

void configure(bool on) noexcept { wanted = on; }
bool on() noexcept { return wanted; }

Export::Export(const Object& object, std::uintptr_t device, const std::byte* host, std::size_t bytes, int peer) noexcept
    : device_(device), bytes_(bytes), peer_(peer) {
    if (!on() || bytes < kSmallest) return;
    auto& all = exports();
    const Locked lock(all.mutex);
    if (!open(all)) return;
    const Exported* const exported = find_or_export(all, object);
    if (exported->refused) return;
    entry_ = enter(all, *exported, reinterpret_cast<std::uintptr_t>(host), bytes, device - object.base, true);
}

Export::~Export() {
    if (entry_ == nullptr) return;
    const Locked lock(exports().mutex);
    remove(*entry_);
}

void Export::again() noexcept {
    if (entry_ == nullptr) return;
    entry_->fetched.store(0, std::memory_order_relaxed);
}

void Export::arrived() noexcept {
    if (entry_ == nullptr || entry_->fetched.load(std::memory_order_acquire) != bytes_) return;
    const Object* const object = coherence().object_of(device_);
    auto& all = exports();
    const Locked lock(all.mutex);
    Exported* const exported = object != nullptr ? find(all, *object) : nullptr;
    if (exported == nullptr) return;
    if (exported->own == nullptr) exported->own = enter(all, *exported, object->base, object->size, 0, false);
    auto& peers = exported->peers;
    if (exported->own != nullptr && std::find(peers.begin(), peers.end(), peer_) == peers.end()) peers.push_back(peer_);
}

bool reads_from_device(const Object& object, int peer) noexcept {
    if (peer < 0 || !any_exported.load(std::memory_order_acquire)) return false;
    auto& all = exports();
    const Locked lock(all.mutex);
    const Exported* const exported = find(all, object);
    return exported != nullptr && all.owner == getpid() &&
           std::find(exported->peers.begin(), exported->peers.end(), peer) != exported->peers.end();
}

std::optional<SharedMemory> shared(const Object& object, std::uintptr_t device) noexcept {
    if (!on()) return std::nullopt;
    auto& all = exports();
    const Locked lock(all.mutex);
    if (!open(all)) return std::nullopt;
    const Exported* const exported = find_or_export(all, object);
    if (exported->refused) return std::nullopt;
    return SharedMemory{exported->handle, exported->id, device - object.base};
}

void ended(const Object& object) noexcept {
    forget_if([&](const Exported& one) { return one.base == object.base && one.serial == object.serial(); });
}

void exports_forget(CUcontext context) noexcept {
    forget_if([&](const Exported& one) { return one.context == context; });
}

}  // namespace hpe::ipc
