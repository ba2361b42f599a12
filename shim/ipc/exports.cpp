// SPDX-License-Identifier: MIT
// The table, and what is known of the objects in it.
#include "shim/ipc/exports.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "shim/base/added.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/copies_under_way.h"

namespace hpe::ipc {

HPE_READ_OFTEN constinit Flag any_exported{false};

namespace {

// Who has read messages, of how many bytes the shortest was.
struct Reader {
    int peer;
    std::size_t bytes;
};

struct Exported {
    std::uintptr_t base = 0;
    std::uint32_t serial = 0;
    void* context = nullptr;
    CUipcMemHandle handle{};
    std::uint64_t id = 0;
    bool refused = false;         // the driver exports no such memory, or is not asked
    std::vector<Reader> readers;  // of itself
    std::vector<Reader> readers_of_image;
    ExportEntry* own = nullptr;  // for the object's own addresses
};

// A peer that got short messages otherwise than from the device: how many in turn, of how many bytes the longest is of
// those that are tried ever more seldom, and how often one was wanted.
struct OtherWay {
    int peer;
    unsigned in_turn = 0;
    std::size_t longest = 0;
    unsigned wanted = 0;
};
// A single one may have had its own reason.
constexpr unsigned kOtherWayInTurn = 4;

// Whose image is being filled.
struct UnderFill {
    const Export* message;
    ExportEntry* entry;
    std::uintptr_t base;
    std::uint32_t serial;
    void* context;
};

// What is entered.
struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    std::size_t offset;  // in the allocation
    bool on_host;
    Image image{};
};

constinit Ways allowed = Ways::All;
constinit std::atomic<ExportTable*> own_table{nullptr};

struct Exports {
    Mutex mutex;
    ExportTable* table HPE_GUARDED_BY(mutex) = nullptr;
    pid_t owner HPE_GUARDED_BY(mutex) = 0;
    bool failed HPE_GUARDED_BY(mutex) = false;
    std::vector<Exported> allocations HPE_GUARDED_BY(mutex);
    std::vector<UnderFill> filling HPE_GUARDED_BY(mutex);
    std::vector<OtherWay> other_ways HPE_GUARDED_BY(mutex);
};
Exports& exports() noexcept {
    static NeverDestroyed<Exports> all;
    return *all;
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
    own_table.store(all.table, std::memory_order_release);
    all.failed = false;
    return true;
}

Exported* find(Exports& all, const Allocation& allocation) noexcept HPE_REQUIRES(all.mutex) {
    if (!allocation) return nullptr;
    const auto found = std::find_if(all.allocations.begin(), all.allocations.end(), [&](const Exported& one) {
        return one.base == allocation.base && one.serial == allocation.object->serial();
    });
    return found != all.allocations.end() ? &*found : nullptr;
}

// nullptr: there is no memory for it.
Exported* find_or_export(Exports& all, const Allocation& allocation) noexcept HPE_REQUIRES(all.mutex) {
    if (Exported* const known = find(all, allocation)) return known;
    const Object& object = *allocation.object;
    Exported one{allocation.base, object.serial(), object.context, {}, 0, true, {}, {}, nullptr};
    if (by_handles()) {
        const Inside inside;
        const ContextScope scope(object.context);
        const CaptureRelaxed relaxed;
        one.refused =
            scope.result() != CUDA_SUCCESS || driver.cuIpcGetMemHandle(&one.handle, allocation.base) != CUDA_SUCCESS ||
            driver.cuPointerGetAttribute(&one.id, CU_POINTER_ATTRIBUTE_BUFFER_ID, allocation.base) != CUDA_SUCCESS;
    }
    any_exported.store(true, std::memory_order_release);
    return added(all.allocations, std::move(one));
}

void begin_change(ExportEntry& entry) noexcept {
    entry.version.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
}
void end_change(ExportEntry& entry) noexcept { entry.version.fetch_add(1, std::memory_order_release); }

ExportEntry* enter(Exports& all, const Exported& object, const Range& range) noexcept HPE_REQUIRES(all.mutex) {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    const auto words =
        std::bit_cast<ExportEntry::Words>(Readable{.memory = {object.handle, object.id, range.offset},
                                                   .has_handle = !object.refused,
                                                   .on_host = range.on_host,
                                                   .image = reinterpret_cast<std::uintptr_t>(range.image.at),
                                                   .arrived = reinterpret_cast<std::uintptr_t>(range.image.arrived),
                                                   .file = static_cast<std::uint64_t>(range.image.file),
                                                   .inode = range.image.inode,
                                                   .file_bytes = range.image.file_bytes,
                                                   .file_offset = range.image.offset});
    for (std::size_t i = 0; i < all.table->entries.size(); ++i) {
        auto& entry = all.table->entries[i];
        if (entry.end.load(kRelaxed) != 0) continue;
        if (all.table->used.load(kRelaxed) <= i) all.table->used.store(i + 1, std::memory_order_release);
        begin_change(entry);
        for (std::size_t w = 0; w < words.size(); ++w) entry.words[w].store(words[w], kRelaxed);
        entry.fetched.store(0, kRelaxed);
        entry.taken.store(0, kRelaxed);
        entry.begin.store(range.begin, kRelaxed);
        entry.end.store(range.begin + range.bytes, kRelaxed);
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

// Receivers of what has ended meanwhile see that, and stop waiting.
template <class Which>
void forget_if(Which&& which) noexcept {
    if (!any_exported.load(std::memory_order_acquire)) return;
    auto& all = exports();
    const Locked lock(all.mutex);
    std::erase_if(all.filling, [&](const UnderFill& one) {
        if (!which(one)) return false;
        remove(*one.entry);
        return true;
    });
    std::erase_if(all.allocations, [&](const Exported& one) {
        all.mutex.assume_held();
        if (!which(one)) return false;
        forget(all, one);
        return true;
    });
}

void add_to(std::vector<Reader>& readers, int peer, std::size_t bytes) noexcept {
    for (auto& one : readers) {
        if (one.peer != peer) continue;
        one.bytes = std::min(one.bytes, bytes);
        return;
    }
    added(readers, {peer, bytes});
}

bool is_known(const Allocation& allocation, int peer, std::size_t bytes,
              std::vector<Reader> Exported::*readers) noexcept {
    if (peer < 0 || !any_exported.load(std::memory_order_acquire)) return false;
    auto& all = exports();
    const Locked lock(all.mutex);
    const Exported* const exported = find(all, allocation);
    return exported != nullptr && all.owner == getpid() &&
           std::any_of((exported->*readers).begin(), (exported->*readers).end(),
                       [&](const Reader& one) { return one.peer == peer && bytes >= one.bytes; });
}

void count_way(Exports& all, int peer, std::size_t bytes, bool other) noexcept HPE_REQUIRES(all.mutex) {
    if (bytes >= kSmallestAlways) return;
    const auto found = std::find_if(all.other_ways.begin(), all.other_ways.end(),
                                    [&](const OtherWay& one) { return one.peer == peer; });
    if (found == all.other_ways.end() && !other) return;
    auto* const way = found != all.other_ways.end() ? &*found : added(all.other_ways, OtherWay{peer});
    if (way == nullptr) return;
    way->in_turn = other ? way->in_turn + 1 : 0;
    if (way->in_turn >= kOtherWayInTurn) way->longest = std::max(way->longest, bytes);
    if (!other) way->longest = std::min(way->longest, bytes - 1);
}

CUcontext context_of(std::uintptr_t device) noexcept {
    const Object* const object = coherence().object_of(device);
    return object != nullptr ? object->context : nullptr;
}

}  // namespace

void configure(Ways ways) noexcept { allowed = ways; }
bool on() noexcept { return allowed != Ways::None; }
bool by_handles() noexcept { return allowed == Ways::All; }

bool may_read(int peer, std::size_t bytes) noexcept {
    if (bytes >= kSmallestAlways || !any_exported.load(std::memory_order_acquire)) return true;
    auto& all = exports();
    const Locked lock(all.mutex);
    return std::none_of(all.other_ways.begin(), all.other_ways.end(), [&](OtherWay& one) {
        return one.peer == peer && bytes <= one.longest && !std::has_single_bit(++one.wanted);
    });
}

Export::Export(std::uintptr_t device, const std::byte* host, const Image& image, std::size_t bytes, int peer) noexcept
    : device_(device), bytes_(bytes), peer_(peer) {
    const auto allocation = coherence().allocation_of(device);
    if (!on() || bytes < kSmallest || !allocation) return;
    base_ = allocation.base;
    serial_ = allocation.object->serial();
    auto& all = exports();
    const Locked lock(all.mutex);
    if (!open(all)) return;
    const Exported* const exported = find_or_export(all, allocation);
    if (exported == nullptr || (exported->refused && image.at == nullptr)) return;
    entry_ =
        enter(all, *exported, {reinterpret_cast<std::uintptr_t>(host), bytes, device - allocation.base, true, image});
}

Export::Export(std::uintptr_t device, const Image& image, std::size_t bytes, int peer) noexcept
    : device_(device), bytes_(bytes), peer_(peer), image_(image), context_(context_of(device)) {
    const auto allocation = coherence().allocation_of(device);
    if (!allocation || !start_filling(image, context_, device, bytes)) return;
    base_ = allocation.base;
    serial_ = allocation.object->serial();
    auto& all = exports();
    {
        const Locked lock(all.mutex);
        const Exported* const exported = find(all, allocation);
        if (exported != nullptr && open(all)) {
            entry_ = enter(all, *exported, {device, bytes, device - allocation.base, false, image});
        }
        if (entry_ != nullptr &&
            added(all.filling, {this, entry_, allocation.base, allocation.object->serial(), context_}) == nullptr) {
            remove(*std::exchange(entry_, nullptr));
        }
    }
    if (entry_ == nullptr) end_filling(image, context_, bytes);
}

Export::~Export() {
    if (entry_ == nullptr) return;
    const bool filled = image_.at != nullptr;
    {
        auto& all = exports();
        const Locked lock(all.mutex);
        const auto removed = std::erase_if(all.filling, [&](const UnderFill& one) { return one.message == this; });
        // Otherwise the object has ended, and the entry may be another message's.
        if (!filled || removed != 0) remove(*entry_);
    }
    if (filled) end_filling(image_, context_, bytes_);
}

bool Export::again() noexcept {
    const auto allocation = coherence().allocation_of(device_);
    if (!allocation || allocation.base != base_ || allocation.object->serial() != serial_) return false;
    if (entry_ == nullptr) return true;
    entry_->fetched.store(0, std::memory_order_relaxed);
    entry_->taken.store(0, std::memory_order_relaxed);
    return true;
}

void Export::arrived() noexcept {
    if (entry_ == nullptr || image_.at != nullptr) return;
    const bool from_device = entry_->fetched.load(std::memory_order_acquire) == bytes_;
    const bool otherwise = !from_device && entry_->taken.load(std::memory_order_acquire) != bytes_;
    const auto allocation = coherence().allocation_of(device_);
    auto& all = exports();
    const Locked lock(all.mutex);
    count_way(all, peer_, bytes_, otherwise);
    Exported* const exported = find(all, allocation);
    if (otherwise || exported == nullptr) return;
    if (!from_device) return add_to(exported->readers_of_image, peer_, bytes_);
    if (exported->own == nullptr) {
        const Object& object = *allocation.object;
        const auto bytes = object.is_region() ? allocation.bytes : object.size;
        exported->own = enter(all, *exported, {allocation.base, bytes, 0, false});
    }
    if (exported->own != nullptr) add_to(exported->readers, peer_, bytes_);
}

void wait_for_readers() noexcept {
    if (auto* const table = own_table.load(std::memory_order_acquire)) wait_for_readers(*table);
}

bool reads_from_device(const Allocation& allocation, int peer, std::size_t bytes) noexcept {
    return is_known(allocation, peer, bytes, &Exported::readers);
}
bool reads_from_image(const Allocation& allocation, int peer, std::size_t bytes) noexcept {
    return is_known(allocation, peer, bytes, &Exported::readers_of_image);
}

std::optional<SharedMemory> shared(std::uintptr_t device) noexcept {
    const auto allocation = coherence().allocation_of(device);
    if (!on() || !allocation) return std::nullopt;
    auto& all = exports();
    const Locked lock(all.mutex);
    if (!open(all)) return std::nullopt;
    const Exported* const exported = find_or_export(all, allocation);
    if (exported == nullptr || exported->refused) return std::nullopt;
    return SharedMemory{exported->handle, exported->id, device - allocation.base};
}

void exported_ended(const Allocation& allocation) noexcept {
    forget_if(
        [&](const auto& one) { return one.base == allocation.base && one.serial == allocation.object->serial(); });
}

void exported_ended(std::uintptr_t base) noexcept {
    forget_if([&](const auto& one) { return one.base == base; });
}

void exports_forget(CUcontext context) noexcept {
    forget_if([&](const auto& one) { return one.context == context; });
    images_forget(context);
}

}  // namespace hpe::ipc
