// SPDX-License-Identifier: MIT
// The values of conditional handles.
#include "toolchain/softgpu/driver/launch/conditional_values.h"

namespace hpe::soft {

bool ConditionalValues::set(CUgraphConditionalHandle handle, unsigned value) {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(handle);
    if (at == cells_.end()) return false;
    at->second.value->store(value);
    return true;
}

void ConditionalValues::add(const std::shared_ptr<const ConditionalHandle>& handle) {
    const std::lock_guard lock(mutex_);
    cells_[handle->number] = {handle, std::make_shared<std::atomic<unsigned>>(handle->initial)};
}

void ConditionalValues::also(const std::shared_ptr<const ConditionalHandle>& handle, CUgraphConditionalHandle known) {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(known);
    if (at == cells_.end()) return;
    const auto value = at->second.value;
    cells_[handle->number] = {handle, value};
    at->second.handle = handle;  // whose initial value counts from now on
}

std::shared_ptr<std::atomic<unsigned>> ConditionalValues::value(CUgraphConditionalHandle handle) const {
    const std::lock_guard lock(mutex_);
    const auto at = cells_.find(handle);
    return at == cells_.end() ? nullptr : at->second.value;
}

void ConditionalValues::assign_initial() {
    const std::lock_guard lock(mutex_);
    for (auto& [number, cell] : cells_)
        if (cell.handle->assigns) cell.value->store(cell.handle->initial);
}

}  // namespace hpe::soft
