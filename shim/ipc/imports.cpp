// SPDX-License-Identifier: MIT
// Tables of other processes, and what is open of them.
#include "shim/ipc/imports.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "shim/base/added.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/memory_file.h"
#include "shim/memory/object.h"

namespace hpe::ipc::imports {

namespace {

struct Peer {
    pid_t process = 0;
    ExportTable* table = nullptr;
    std::uint64_t ended = 0;  // of its allocations, as far as seen
    unsigned asked = 0;       // how often a table was wanted, and there was none
    std::size_t last = 0;     // which entry was found last
};

struct Import {
    pid_t process;
    std::uint64_t id;
    CUcontext context;
    CUdeviceptr base;  // 0: the driver refused
};

constinit std::atomic<bool> any_table{false};

struct Imports {
    std::vector<Peer> peers;
    std::vector<Import> open;
};
Imports& imports() noexcept {
    static NeverDestroyed<Imports> all;
    return *all;
}

ExportTable* open_table(pid_t process) noexcept {
    const int file = memory_file_of(process, ExportTable::kName);
    if (file < 0) return nullptr;
    struct stat status {};
    void* memory = MAP_FAILED;
    if (fstat(file, &status) == 0 && status.st_size == sizeof(ExportTable))
        memory = ::mmap(nullptr, sizeof(ExportTable), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<ExportTable*>(memory);
}

Peer* peer_of(Imports& all, pid_t process, bool expected) noexcept {
    const auto known =
        std::find_if(all.peers.begin(), all.peers.end(), [&](const Peer& p) { return p.process == process; });
    if (known == all.peers.end() && !expected) return nullptr;
    Peer* const found = known != all.peers.end() ? &*known : added(all.peers, {process, nullptr, 0, 0, 0});
    if (found == nullptr) return nullptr;
    // One without a table may send host memory only: it is asked ever more seldom.
    if (found->table == nullptr && expected && std::has_single_bit(++found->asked)) {
        found->table = open_table(process);
        if (found->table != nullptr) any_table.store(true, std::memory_order_release);
    }
    return found->table != nullptr ? found : nullptr;
}

void close_import(const Import& import) noexcept {
    if (import.base == 0) return;
    const Inside inside;
    const ContextScope scope(import.context);
    const CaptureRelaxed relaxed;
    if (scope.result() == CUDA_SUCCESS) driver.cuIpcCloseMemHandle(import.base);
}

void close_ended(Imports& all, Peer& peer) noexcept {
    const auto ended = peer.table->ended.load(std::memory_order_acquire);
    if (ended == peer.ended) return;
    const bool all_of_it = ended - peer.ended > ExportTable::kEnded;
    std::erase_if(all.open, [&](const Import& import) {
        bool gone = import.process == peer.process && all_of_it;
        for (auto i = peer.ended; i < ended && !gone && import.process == peer.process && !all_of_it; ++i) {
            gone = peer.table->ended_ids[i % ExportTable::kEnded].load(std::memory_order_relaxed) == import.id;
        }
        if (gone) close_import(import);
        return gone;
    });
    peer.ended = ended;
}

// False: it does not concern the address.
bool read_entry(ExportEntry& entry, std::uintptr_t at, std::size_t bytes, Found& found) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    std::uint64_t begin = 0, end = 0;
    const auto lies_in = [&] {
        begin = entry.begin.load(kRelaxed);
        end = entry.end.load(kRelaxed);
        return at >= begin && at < end;
    };
    if (!lies_in()) return false;
    // An owner that was killed may have left an entry half changed.
    constexpr int kAttempts = 1000;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const auto version = entry.version.load(std::memory_order_acquire);
        const bool concerns = lies_in();
        ExportEntry::Words words{};
        for (std::size_t w = 0; w < words.size(); ++w) words[w] = entry.words[w].load(kRelaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (version % 2 != 0 || entry.version.load(kRelaxed) != version) continue;
        if (!concerns) return false;
        const auto first = at - begin;
        found = {std::bit_cast<Readable>(words), &entry, version, std::min<std::size_t>(bytes, end - at), first};
        if (found.image != 0) found.image += first;
        found.file_offset += first;
        return true;
    }
    return false;
}

// Opened, or what became of that: the driver is asked once. nullptr: there is no memory for it.
Import* import_of(Imports& all, pid_t process, const SharedMemory& memory, CUcontext context) noexcept {
    const auto known = std::find_if(all.open.begin(), all.open.end(), [&](const Import& i) {
        return i.process == process && i.id == memory.id && i.context == context;
    });
    if (known != all.open.end()) return &*known;
    Import* const import = added(all.open, {process, memory.id, context, 0});
    if (import == nullptr) return nullptr;
    const Inside inside;
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    if (scope.result() != CUDA_SUCCESS ||
        driver.cuIpcOpenMemHandle_v2(&import->base, memory.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
            CUDA_SUCCESS) {
        import->base = 0;
    }
    return import;
}

// For bytes that lie on the device alone, in a process that has nothing open any more: what it had went with its
// context, or was freed by its owner. A process without any context gets its device's primary one.
CUcontext any_context() noexcept {
    CUcontext context = nullptr;
    ObjectPool::for_open([&](const Object& object) { context = object.context; });
    if (context != nullptr) return context;
    const Inside inside;
    CUdevice device = 0;
    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) device = 0;
    return driver.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS ? context : nullptr;
}

// Opens what is to be opened; leaves `found` as it is where nothing can be.
void find_on_device(Imports& all, pid_t process, CUcontext context, Found& found) noexcept {
    if (!found.has_handle || !by_handles()) return;
    const auto opened = [&](auto&& is) {
        const auto one = std::find_if(all.open.begin(), all.open.end(),
                                      [&](const Import& i) { return i.process == process && i.base != 0 && is(i); });
        return one != all.open.end() ? &*one : nullptr;
    };
    if (context == nullptr) {
        const Import* const known = opened([](const Import&) { return true; });
        const bool elsewhere_too = found.on_host || found.image != 0;
        context = known != nullptr ? known->context : elsewhere_too ? nullptr : any_context();
        if (context == nullptr) return;
    }
    const Import* which = import_of(all, process, found.memory, context);
    // A device that cannot reach the owner's: another context of this process may have opened it.
    if (which == nullptr || which->base == 0) which = opened([&](const Import& i) { return i.id == found.memory.id; });
    if (which == nullptr) return;
    found.context = which->context;
    found.device = which->base + found.memory.offset + found.first;
}

}  // namespace

bool any() noexcept { return any_table.load(std::memory_order_acquire); }

// Messages from one object's own addresses may overlap, and each has an entry: their bytes are the same.
Found find(pid_t process, std::uintptr_t at, std::size_t bytes, CUcontext context, bool expected) noexcept {
    auto& all = imports();
    Peer* const peer = peer_of(all, process, expected);
    if (peer == nullptr) return {};
    close_ended(all, *peer);
    const auto find_in = [&](std::size_t i) {
        Found found;
        if (read_entry(peer->table->entries[i], at, bytes, found)) find_on_device(all, process, context, found);
        return found;
    };
    // Many messages may come out of one object, whose entry stands behind those of messages that have ended.
    const auto used = std::min<std::size_t>(peer->table->used.load(std::memory_order_acquire), ExportTable::kEntries);
    if (peer->last < used) {
        if (const auto found = find_in(peer->last); found.device != 0) return found;
    }
    Found best;
    for (std::size_t i = 0; i < used; ++i) {
        const auto found = find_in(i);
        if (found.device != 0) {
            peer->last = i;
            return found;
        }
        if (found.entry != nullptr && (best.entry == nullptr || (best.image == 0 && found.image != 0))) best = found;
    }
    return best;
}

CUdeviceptr open(pid_t process, const SharedMemory& memory, CUcontext context) noexcept {
    auto& all = imports();
    // Whoever passes memory on has a table.
    for (auto& peer : all.peers) {
        if (peer.process == process) peer.asked = 0;
    }
    Peer* const peer = peer_of(all, process, true);
    if (peer == nullptr) return 0;
    close_ended(all, *peer);
    const Import* const import = import_of(all, process, memory, context);
    return import != nullptr && import->base != 0 ? import->base + memory.offset : 0;
}

const reading_devices::Place* place(pid_t process, CUcontext context) noexcept {
    Peer* const peer = peer_of(imports(), process, false);
    return peer != nullptr ? reading_devices::place(*peer->table, context) : nullptr;
}

void forget(CUcontext context) noexcept {
    if (!any()) return;
    std::erase_if(imports().open, [&](const Import& import) { return import.context == context; });
}

}  // namespace hpe::ipc::imports
