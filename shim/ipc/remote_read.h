// SPDX-License-Identifier: MIT
// Reads of another process's memory (process_vm_readv), by which MPI libraries move messages between processes of one
// host: where the bytes are exported device memory (exports.h), they are copied from there, or from host memory to
// which the other device is bringing them, and straight into the object that the message is for. Matching, order,
// probing and length of messages stay MPI's own. A copy from device to device may go on when the read has returned
// (copies_under_way.h).
//
// Bytes; `own` lies in no object. Threads: any that call MPI, outside the gate; one read at a time, also while it waits
// for bytes: they come whatever this process does, and links and devices are as busy as with several. Errors: as
// process_vm_readv; EFAULT where the device cannot give the bytes.
#pragma once

#include <cuda.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shim/copies/layout.h"
#include "shim/copies/packing.h"
#include "shim/ipc/copies_under_way.h"
#include "shim/ipc/export_table.h"
#include "shim/memory/object.h"

namespace hpe::ipc {

// A message that MPI will write to host memory, in place of the same bytes of an object; from before MPI is asked until
// it has finished. Meanwhile the object's bytes are MPI's, as a receive buffer is.
class Arrival {
public:
    Arrival(const Object& object, std::uintptr_t device, const std::byte* host, std::size_t bytes) noexcept;
    ~Arrival();
    Arrival(const Arrival&) = delete;
    Arrival& operator=(const Arrival&) = delete;
    // The message is of packed bytes, which are to lie at `at` by the layout: where all of it comes from the other
    // device at once, the device puts them there, and not into the object.
    void unpack(const Layout& layout, std::uintptr_t at) noexcept;
    bool unpacked() const noexcept;
    // Another message is expected there.
    void again() noexcept;
    // Bytes are being copied to the object.
    bool under_way() const noexcept;
    // MPI has finished: so many bytes, from the first on, were written to the object; what came besides is in host
    // memory. Waits for the device; nothing: it has failed.
    std::optional<std::size_t> on_device() noexcept;

private:
    friend struct Reads;
    std::optional<packing::Launch> unpacking_to(std::uintptr_t from, OwnWork& work, DeviceRange& writes) noexcept;

    const std::uintptr_t device_;
    void* const context_;
    const std::uintptr_t host_;
    const std::size_t bytes_;
    std::size_t on_device_ = 0;
    CopiesUnderWay copies_;
    std::optional<Layout> layout_;
    std::uintptr_t unpacked_at_ = 0;
    std::optional<packing::Launch> unpacking_;
    bool idle_ = false;  // no device work was outstanding when MPI got the bytes: no later work may use them
};

// False: no read concerns libhpe. A few loads.
bool may_read_device() noexcept;
// A read as the caller's process_vm_readv; nothing: it reads no device memory.
std::optional<ssize_t> remote_read(pid_t process, std::span<const iovec> own, std::span<const iovec> other) noexcept;

// Memory that another process has passed on (exports.h), opened in a context of this one; 0: cannot be. It stays so
// until its owner has freed it.
std::uintptr_t opened(pid_t process, const SharedMemory& memory, void* context) noexcept;

// The context has ended.
void imports_forget(CUcontext context) noexcept;

}  // namespace hpe::ipc
