// SPDX-License-Identifier: MIT
// The table of texture objects.
#include "toolchain/softgpu/driver/device/texture_table.h"

#include <mutex>
#include <utility>

namespace hpe::soft {

CUtexObject Textures::add(TextureObject object) {
    const std::unique_lock lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
}

bool Textures::remove(CUtexObject handle) {
    const std::unique_lock lock(mutex_);
    return objects_.erase(handle) != 0;
}

bool Textures::find(CUtexObject handle, TextureObject& out) const {
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(handle);
    if (at == objects_.end()) return false;
    out = at->second;
    return true;
}

std::shared_ptr<const Texture> Textures::texture_in(const Context& context, CUtexObject handle) const noexcept {
    const std::shared_lock lock(mutex_);
    const auto at = objects_.find(handle);
    return at == objects_.end() || at->second.context != &context ? nullptr : at->second.texture;
}

void Textures::forget(const Context& context) {
    const std::unique_lock lock(mutex_);
    std::erase_if(objects_, [&](const auto& entry) { return entry.second.context == &context; });
}

}  // namespace hpe::soft
