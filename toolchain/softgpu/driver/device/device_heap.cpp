// SPDX-License-Identifier: MIT
// malloc and free of kernels: first fit, neighbours are joined again.
#include "toolchain/softgpu/driver/device/device_heap.h"

#include <iterator>

#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes, const std::function<Room()>& make) {
    const std::lock_guard lock(mutex_);
    if (!made_) {
        const auto [address, size] = make();
        if (address == 0) return 0;
        free_.emplace(address, size);
        made_ = true;
    }
    if (bytes > std::uint64_t{1} << 62) return 0;
    bytes = round_up(bytes == 0 ? 1 : bytes, grain);
    for (auto at = free_.begin(); at != free_.end(); ++at) {
        if (at->second < bytes) continue;
        const auto [address, size] = *at;
        free_.erase(at);
        if (size > bytes) free_.emplace(address + bytes, size - bytes);
        used_.emplace(address, bytes);
        return address;
    }
    return 0;
}

bool DeviceHeap::release(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto at = used_.find(address);
    if (at == used_.end()) return false;
    std::uint64_t bytes = at->second;
    used_.erase(at);
    auto next = free_.lower_bound(address);
    if (next != free_.end() && next->first == address + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == address) {
            before->second += bytes;
            return true;
        }
    }
    free_.emplace(address, bytes);
    return true;
}

bool DeviceHeap::made() const {
    const std::lock_guard lock(mutex_);
    return made_;
}

void DeviceHeap::forget() {
    const std::lock_guard lock(mutex_);
    made_ = false;
    free_.clear();
    used_.clear();
}

}  // namespace hpe::soft
