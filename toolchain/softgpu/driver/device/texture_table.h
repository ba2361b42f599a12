// SPDX-License-Identifier: MIT
// The texture objects that exist (CUDA Driver API, "Texture Object Management"): what kernels read by coordinates. How
// they are made: texture.cpp.
//
// An object never changes. A handle is a number that is never given twice, so that a stale one is found out.
// Threads: any. Errors: false, or nullptr.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "toolchain/softgpu/driver/base/abi.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {

class Context;

struct TextureObject {
    const Context* context = nullptr;
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC description{};
    std::shared_ptr<const Texture> texture;
};

class Textures {
public:
    CUtexObject add(TextureObject object);
    bool remove(CUtexObject handle);  // false: none
    bool find(CUtexObject handle, TextureObject& out) const;
    // For kernels of the context; nullptr: none of its own.
    std::shared_ptr<const Texture> texture_in(const Context& context, CUtexObject handle) const noexcept;
    void forget(const Context& context);

private:
    mutable std::shared_mutex mutex_;
    std::unordered_map<CUtexObject, TextureObject> objects_;
    CUtexObject last_ = 0;
};

}  // namespace hpe::soft
