// SPDX-License-Identifier: MIT
// What a running kernel reaches: memory of its context and its peers, the kernels' heap, textures, conditional handles
// (CUDA C++ Programming Guide, "Unified Virtual Address Space", "Dynamic Global Memory Allocation").
//
// A view without state of its own, as long as the launch. Threads: any worker that runs the kernel. Errors: false, 0 or
// nullptr, of which the executor makes the kernel's fault.
#pragma once

#include <cstdint>
#include <memory>

#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {

class ConditionalValues;
class Context;

// What a kernel of `context` may touch.
class KernelMemory final : public AddressSpace {
public:
    explicit KernelMemory(Context& context, ConditionalValues* conditionals = nullptr)
        : conditionals_(conditionals), context_(context) {}
    bool find(std::uint64_t address, Range& out) const noexcept override;
    bool set_conditional(std::uint64_t handle, std::uint32_t value) const noexcept override;
    std::uint64_t allocate(std::uint64_t bytes) const noexcept override;
    bool release(std::uint64_t address) const noexcept override;
    std::shared_ptr<const Texture> texture(std::uint64_t handle) const noexcept override;

private:
    ConditionalValues* const conditionals_;  // of the graph that runs the kernel; null: none
    Context& context_;
};

}  // namespace hpe::soft
