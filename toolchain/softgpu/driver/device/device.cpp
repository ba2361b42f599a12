// SPDX-License-Identifier: MIT
// Physical memory and the link of a device.
#include "toolchain/softgpu/driver/device/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <thread>

namespace hpe::soft {

bool DeviceMemory::open() {
    const std::lock_guard lock(mutex_);
    if (view_) return true;
    const std::uint64_t span = file_bytes();
    const int fd = memfd_create("soft-device-memory", MFD_CLOEXEC);
    if (fd < 0) return false;
    void* view = MAP_FAILED;
    if (ftruncate(fd, static_cast<off_t>(span)) == 0)
        view = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (view == MAP_FAILED) {
        close(fd);
        return false;
    }
    // A child has no device, and copying these page tables would only slow its fork down.
    madvise(view, span, MADV_DONTFORK);
    fd_ = fd;
    view_ = static_cast<std::byte*>(view);
    free_.emplace(0, span);
    return true;
}

bool DeviceMemory::allocate(std::uint64_t bytes, std::uint64_t& offset) {
    const std::lock_guard lock(mutex_);
    if (bytes > capacity_ - used_) return false;
    for (auto at = free_.begin(); at != free_.end(); ++at) {
        if (at->second < bytes) continue;
        offset = at->first;
        const std::uint64_t rest = at->second - bytes;
        free_.erase(at);
        if (rest) free_.emplace(offset + bytes, rest);
        used_ += bytes;
        return true;
    }
    return false;
}

void DeviceMemory::release(std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    used_ -= bytes;
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    free_.emplace(offset, bytes);
}

std::uint64_t DeviceMemory::used() const {
    const std::lock_guard lock(mutex_);
    return used_;
}

void Link::finish(Direction direction, std::uint64_t bytes, std::uint64_t bytes_per_second,
                  std::chrono::steady_clock::time_point start) {
    if (bytes_per_second == 0 && latency_.count() == 0) return;
    std::chrono::steady_clock::time_point end;
    {
        const std::lock_guard lock(mutex_);
        end = std::max(start, free_at_[direction]) + latency_;
        if (bytes_per_second)
            end += std::chrono::nanoseconds(
                static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_second)));
        // Latency is not occupancy: the next transfer may start while this one's last bytes are on their way.
        free_at_[direction] = end - latency_;
    }
    std::this_thread::sleep_until(end);
}

}  // namespace hpe::soft
