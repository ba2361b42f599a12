// SPDX-License-Identifier: MIT
// Who may touch what.
#include "toolchain/softgpu/driver/launch/kernel_memory.h"

#include <new>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/launch/conditional_values.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/memory/pool.h"

namespace hpe::soft {

bool KernelMemory::find(std::uint64_t address, Range& out) const noexcept {
    const AllocationRef allocation = driver().addresses.find(address);
    if (!allocation) return false;
    bool readable = true, writable = true;
    switch (allocation->kind) {
        case Kind::Device: {
            const Context* owner = allocation->context;
            readable = owner == &context_ || context_.may_reach(*owner);
            break;
        }
        case Kind::Pool: readable = writable = pool_reaches(*allocation, context_.device().ordinal); break;
        case Kind::Virtual:
            writable = allocation->access.contains(context_.device().ordinal);
            readable = writable || allocation->access_read.contains(context_.device().ordinal);
            break;
        case Kind::Graph:
            readable = writable = allocation->bytes && allocation->access.contains(context_.device().ordinal);
            break;
        case Kind::Registered: writable = !allocation->read_only; break;
        case Kind::Pinned:
        case Kind::Managed: break;
    }
    if (!readable) return false;
    out = {allocation->address, allocation->end(), allocation->bytes, writable};
    return true;
}

std::uint64_t KernelMemory::allocate(std::uint64_t bytes) const noexcept {
    try {
        return context_.device_heap.allocate(bytes, [this] {
            std::uint64_t size = 0;
            {
                const std::lock_guard order(driver().order);
                size = context_.limits[CU_LIMIT_MALLOC_HEAP_SIZE];
            }
            size = round_up(size, DeviceHeap::grain);
            // Like a module's variable it is nothing that the application could free.
            return DeviceHeap::Room{size == 0 ? 0 : allocate_device(context_, size, true), size};
        });
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

bool KernelMemory::release(std::uint64_t address) const noexcept {
    try {
        return context_.device_heap.release(address);
    } catch (const std::bad_alloc&) {
        return true;  // lost until the context ends
    }
}

bool KernelMemory::set_conditional(std::uint64_t handle, std::uint32_t value) const noexcept {
    return conditionals_ && conditionals_->set(handle, value);
}

std::shared_ptr<const Texture> KernelMemory::texture(std::uint64_t handle) const noexcept {
    return driver().textures.texture_in(context_, handle);
}

}  // namespace hpe::soft
