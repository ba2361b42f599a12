// SPDX-License-Identifier: MIT
// Device memory of this process that other processes may read while a message is under way (export_table.h). An object
// stays shared with the CPU meanwhile, since nobody else writes to it.
//
// A message leaves from host memory that is filled and is exported: its receiver may take the bytes from the device
// instead, or, where CUDA does not let it, map that host memory and take them from there. A receiver that was seen to
// do either is known: the next message from the same object may be given by its device address alone, for only that
// receiver will read it. Where it takes them from host memory, the device brings them there meanwhile. What is not
// known is not tried.
//
// Peers are numbers by which the caller tells receivers apart. Bytes. Threads: any, outside the fault path and the
// gate. Errors: what cannot be exported is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/base/flag.h"
#include "shim/ipc/export_table.h"
#include "shim/ipc/host_images.h"
#include "shim/memory/object.h"

namespace hpe::ipc {

// How messages may go past the MPI (HPE_MPI_IPC).
enum class Ways : std::uint8_t { None, HostMemory, All };
// Once, before anything else.
void configure(Ways ways) noexcept;
bool on() noexcept;
bool by_handles() noexcept;  // device memory of other processes may be opened

// Smaller messages are sent from host memory, and those between the two sizes if the MPI moves such by itself: from how
// many bytes on its receiver reads a message where it lies is each MPI's choice. On two H200s an exchange of 64 KiB
// between two kernels takes 27 us so, and of 32 KiB by host memory 40.
constexpr std::size_t kSmallest = std::size_t{8} << 10, kSmallestAlways = std::size_t{64} << 10;
// False: the peer is known to get so short a message otherwise; some of them are tried again.
bool may_read(int peer, std::size_t bytes) noexcept;

// A message to a peer, from its beginning to its end.
class Export {
public:
    // Its bytes lie at `device` in an object, and at `host`, which may be an image.
    Export(std::uintptr_t device, const std::byte* host, const Image& image, std::size_t bytes, int peer) noexcept;
    // Its bytes lie at `device` alone, which is what MPI is given; the device begins to bring them to the image. Its
    // earlier work has ended.
    Export(std::uintptr_t device, const Image& image, std::size_t bytes, int peer) noexcept;
    ~Export();
    Export(const Export&) = delete;
    Export& operator=(const Export&) = delete;
    // False: nobody can read it.
    bool made() const noexcept { return entry_ != nullptr; }
    // The same buffer is sent once more. False: its memory was freed meanwhile, and this message is nobody's.
    bool again() noexcept;
    // The message has arrived. If all of it came from the device, or from the image, the peer is known from now on.
    void arrived() noexcept;

private:
    ExportEntry* entry_ = nullptr;
    const std::uintptr_t device_;
    const std::size_t bytes_;
    const int peer_;
    std::uintptr_t base_ = 0;            // of the allocation
    std::uint32_t serial_ = 0;           // of its object
    const Image image_{};                // that is being filled
    CUcontext const context_ = nullptr;  // by whom
};

// MPI says that a message has been received: waits until its receiver's device has it.
void wait_for_readers() noexcept;

// Whether a message from the allocation's own address will be read by its receiver from the device.
bool reads_from_device(const Allocation& allocation, int peer, std::size_t bytes) noexcept;
// Whether it will be read from an image.
bool reads_from_image(const Allocation& allocation, int peer, std::size_t bytes) noexcept;

// An allocation's memory from `device` on, for another process to open while both know that it is not freed: its owner
// passes this on. Nothing: the driver exports no such memory.
std::optional<SharedMemory> shared(std::uintptr_t device) noexcept;

// The allocation is about to be freed, or its context to end: readers close what they opened.
HPE_HIDDEN extern constinit Flag any_exported;  // ever
void exported_ended(const Allocation& allocation) noexcept;
inline void ended(const Allocation& allocation) noexcept {
    if (any_exported.load(std::memory_order_acquire) != 0) exported_ended(allocation);
}
// The same of one that libhpe does not share any more, since the program has exported it, too.
void exported_ended(std::uintptr_t base) noexcept;
inline void ended(std::uintptr_t base) noexcept {
    if (any_exported.load(std::memory_order_acquire) != 0) exported_ended(base);
}
void exports_forget(CUcontext context) noexcept;

}  // namespace hpe::ipc
