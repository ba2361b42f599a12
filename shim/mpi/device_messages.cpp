// SPDX-License-Identifier: MIT
// A message of this process to itself, in memory that counts accesses of the CPU: objects of libhpe's own.
#include "shim/mpi/device_messages.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "shim/coherence/coherence.h"
#include "shim/copies/lent.h"
#include "shim/copies/own_work.h"
#include "shim/driver/driver.h"
#include "shim/driver/message_library.h"
#include "shim/mpi/device_memory.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

// UCX with its CUDA module looks at every address, whatever the MPI says of itself.
int find_cuda_module(dl_phdr_info* library, std::size_t, void*) noexcept {
    if (!message_library::is_named(library->dlpi_name)) return 0;
    for (const auto& part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
        if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
        const auto begin = library->dlpi_addr + part.p_vaddr;
        message_library::lies_at(begin, begin + part.p_memsz);
    }
    return 1;
}

// Large enough for the way that large messages go, and too small for libhpe's memcpy to leave it to the device.
using Content = std::array<std::byte, bulk::kSmallest / 2>;

bool fill(const DeviceMemory& memory, void* context, const Content& content) noexcept {
    OwnWork work(context);
    const auto copy = [&] { return work.to_device(memory.at(), content.data(), content.size()); };
    return work && work.run({}, {memory.at(), content.size()}, copy) == CUDA_SUCCESS;
}

bool holds(const DeviceMemory& memory, void* context, const Content& content, Content& got) noexcept {
    OwnWork work(context);
    const auto copy = [&] { return work.to_host(got.data(), memory.at(), got.size()); };
    return work && work.run({memory.at(), got.size()}, {}, copy) == CUDA_SUCCESS && got == content;
}

bool touched_by_cpu(const DeviceMemory& memory) noexcept {
    const Object* const object = coherence().object_at(memory.at());
    return object == nullptr || object->host_valid_blocks.load(std::memory_order_acquire) != 0;
}

bool moved(std::uintptr_t from, std::uintptr_t to) noexcept {
    // Of a communicator of its own, whose errors are not the program's. A duplicate would call copy functions of the
    // program's.
    MPI_Comm comm{};
    if (functions.MPI_Comm_split(handles.self, 0, 0, &comm) != MPI_SUCCESS) return false;
    constexpr int kBytes = sizeof(Content);
    const bool sent = functions.MPI_Comm_set_errhandler(comm, handles.errors_return) == MPI_SUCCESS &&
                      functions.MPI_Sendrecv(reinterpret_cast<const void*>(from), kBytes, handles.byte, 0, 0,
                                             reinterpret_cast<void*>(to), kBytes, handles.byte, 0, 0, comm,
                                             MPI_STATUS_IGNORE) == MPI_SUCCESS;
    functions.MPI_Comm_free(&comm);
    return sent;
}

bool try_it(void* context) noexcept {
    // No static room: that would count against the data limit of every process, also without MPI.
    const std::unique_ptr<std::array<Content, 2>> room(new (std::nothrow) std::array<Content, 2>{});
    if (room == nullptr) return false;
    auto& [content, got] = *room;
    const DeviceMemory from(context, content.size()), to(context, content.size());
    if (from.at() == 0 || to.at() == 0 || !fill(to, context, content)) return false;
    content.fill(std::byte{0x5A});
    if (!fill(from, context, content)) return false;
    const Lent read(from.at(), content.size(), Lent::For::Reading),
        written(to.at(), content.size(), Lent::For::Writing);
    return read && written && moved(from.at(), to.at()) && !touched_by_cpu(from) && !touched_by_cpu(to) &&
           holds(to, context, content, got);
}

// MPI starts once.
bool has_started() noexcept {
    static constinit std::atomic<bool> known{false};
    if (known.load(std::memory_order_relaxed)) return true;
    int started = 0;
    if (functions.MPI_Initialized(&started) != MPI_SUCCESS || started == 0) return false;
    known.store(true, std::memory_order_relaxed);
    return true;
}

}  // namespace

bool built_for_cuda() noexcept {
    return functions.MPIX_Query_cuda_support != nullptr && functions.MPIX_Query_cuda_support() == 1;
}

// Once MPI has started: it has loaded its modules then.
bool knows_cuda() noexcept {
    static const bool knows = dl_iterate_phdr(find_cuda_module, nullptr) != 0 || built_for_cuda();
    return knows;
}

bool moves_device_memory(void* context) noexcept {
    if (!has_started() || !knows_cuda()) return false;
    static const bool moves = try_it(context);
    return moves;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
