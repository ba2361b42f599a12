// SPDX-License-Identifier: MIT
// Physical memory that the program mapped at device addresses (cuMemMap), and which of these mappings are objects:
// those that the current context's device may read and write, of linear memory on that device, as long as nobody else
// writes the same memory by another mapping, in another process, or by a multicast object. All others are device-owned.
//
// Addresses are the device's, sizes bytes, handles the driver's. Threads: any, outside the fault path and the gate.
// Errors: those of bringing the device copy up to date; the mapping stays shared then.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shim/memory/object.h"

namespace hpe::virtual_memory {

// Memory was mapped there, which nothing may access yet. After an error (std::bad_alloc, too) the caller takes it away
// again, with unmapped().
CUresult mapped(std::uintptr_t at, std::size_t bytes, CUmemGenericAllocationHandle handle);
// The device's right to write there is about to end: what is an object is none meanwhile, and again one unless the
// right was lost.
class LosesAccess {
public:
    LosesAccess(std::uintptr_t at, std::size_t bytes, std::span<const CUmemAccessDesc> accesses);
    ~LosesAccess();
    LosesAccess(const LosesAccess&) = delete;
    LosesAccess& operator=(const LosesAccess&) = delete;
    CUresult result() const noexcept { return result_; }
    void lost();

private:
    struct Range {
        std::uintptr_t at;
        std::size_t bytes;
        CUcontext object_of;  // whose object it was; nullptr: it was none
    };
    std::vector<Range> ranges_;
    CUresult result_ = CUDA_SUCCESS;
};
// It has begun.
void give_access(std::uintptr_t at, std::size_t bytes, std::span<const CUmemAccessDesc> accesses);
// The objects that the mappings there are, for their end.
std::vector<Object*> objects_in(std::uintptr_t at, std::size_t bytes);
void unmapped(std::uintptr_t at, std::size_t bytes) noexcept;

// From now on others may write this memory, wherever it is mapped.
CUresult others_use(CUmemGenericAllocationHandle handle);
// The same of what is mapped there, if anything is, which the caller hands over; and of what in a range is no object,
// and has nothing to be handed over. Throw std::bad_alloc.
void others_use_mapping(std::uintptr_t address);
void others_use_what_is_no_object(std::uintptr_t at, std::size_t bytes);
// The handle was had once more, from an address where its memory is mapped; was given back, perhaps for the last time:
// then the driver may use the number again.
void retained(CUmemGenericAllocationHandle handle, std::uintptr_t address);
void released(CUmemGenericAllocationHandle handle);

}  // namespace hpe::virtual_memory
