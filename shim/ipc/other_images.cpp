// SPDX-License-Identifier: MIT
// A list of files, by their inodes: a file that is mapped here keeps its number.
#include "shim/ipc/other_images.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "shim/base/added.h"
#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/ipc/host_images.h"
#include "shim/memory/pinned.h"

namespace hpe::ipc::other_images {

namespace {

constexpr std::size_t kMostMapped = std::size_t{512} << 20;

struct Mapped {
    std::uint64_t inode = 0;
    std::size_t bytes = 0;
    std::byte* mapping = nullptr;  // nullptr: seen once, or it cannot be mapped
    CUcontext context = nullptr;
};

// The last one was used last.
std::vector<Mapped>& images() noexcept {
    static NeverDestroyed<std::vector<Mapped>> all;
    return *all;
}

// -1: it is not there, or another file by now.
int open_file(pid_t process, const imports::Found& found) noexcept {
    char path[64], target[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", static_cast<int>(process), static_cast<int>(found.file));
    const auto length = readlink(path, target, sizeof target);
    if (length <= 0 ||
        std::string_view(target, static_cast<std::size_t>(length)).find(kImageName) == std::string_view::npos) {
        return -1;
    }
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    struct stat status {};
    if (file >= 0 && fstat(file, &status) == 0 && status.st_ino == found.inode &&
        static_cast<std::size_t>(status.st_size) == found.file_bytes) {
        return file;
    }
    if (file >= 0) close(file);
    return -1;
}

void unmap(Mapped& image) noexcept {
    if (image.mapping == nullptr) return;
    if (image.context != nullptr) {
        const Inside inside;
        const ContextScope scope(image.context);
        const CaptureRelaxed relaxed;
        if (scope.result() == CUDA_SUCCESS) driver.cuMemHostUnregister(image.mapping);
        pinned::give_back(image.bytes);
    }
    kernel::munmap(image.mapping, image.bytes);
    image.mapping = nullptr;
}

// What was used longest ago goes.
void make_room(std::size_t bytes) noexcept {
    auto& all = images();
    std::size_t sum = bytes;
    for (const auto& image : all) sum += image.mapping != nullptr ? image.bytes : 0;
    for (auto& image : all) {
        if (sum <= kMostMapped) break;
        sum -= image.mapping != nullptr ? image.bytes : 0;
        unmap(image);
    }
}

bool map(pid_t process, const imports::Found& found, CUcontext context, Mapped& image) noexcept {
    const int file = open_file(process, found);
    if (file < 0) return false;
    void* const at = kernel::mmap(nullptr, found.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file);
    close(file);
    if (at == MAP_FAILED) return false;
    if (!pinned::take(found.file_bytes)) {
        kernel::munmap(at, found.file_bytes);
        return false;
    }
    const Inside inside;
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    kernel::madvise(at, found.file_bytes, MADV_DONTFORK);
    if (scope.result() != CUDA_SUCCESS ||
        driver.cuMemHostRegister_v2(at, found.file_bytes, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
        pinned::give_back(found.file_bytes);
        kernel::munmap(at, found.file_bytes);
        return false;
    }
    image.mapping = static_cast<std::byte*>(at);
    image.context = context;
    return true;
}

}  // namespace

bool same(const imports::Found& found) noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return found.entry->version.load(std::memory_order_relaxed) == found.version;
}

long arrived_after(pid_t process, const imports::Found& found, std::size_t done) noexcept {
    using Clock = std::chrono::steady_clock;
    // A device brings 4 MiB in a tenth of a millisecond, and in some more where others use the link, too.
    constexpr std::chrono::seconds kLong{20};
    std::uint32_t number = 0, before = 0;
    const iovec mine{&number, sizeof number}, theirs{reinterpret_cast<void*>(found.arrived), sizeof number};
    for (auto end = Clock::now() + kLong;;) {
        // The kernel also says whether the process is there at all.
        const long got =
            kernel::raw(SYS_process_vm_readv, process, kernel::word(&mine), 1, kernel::word(&theirs), 1, 0);
        if (!same(found)) return -EAGAIN;
        if (got != sizeof number) return got < 0 ? got : -EFAULT;
        if (number > found.first + done) return static_cast<long>(std::min(number - found.first, found.bytes));
        if (number != before) {
            before = number;
            end = Clock::now() + kLong;
        } else if (Clock::now() > end) {
            return -EFAULT;
        }
        sched_yield();
    }
}

const std::byte* pinned(pid_t process, const imports::Found& found, CUcontext context) noexcept {
    const ErrnoKept kept;
    auto& all = images();
    const auto known = std::find_if(all.begin(), all.end(), [&](const Mapped& i) { return i.inode == found.inode; });
    if (known == all.end()) {
        constexpr std::size_t kMost = 256;
        if (all.size() >= kMost) {
            const auto forgotten =
                std::find_if(all.begin(), all.end(), [](const Mapped& i) { return i.mapping == nullptr; });
            if (forgotten != all.end()) all.erase(forgotten);
        }
        added(all, {found.inode, found.file_bytes, nullptr, nullptr});
        return nullptr;
    }
    std::rotate(known, known + 1, all.end());
    Mapped& image = all.back();
    if (image.mapping == nullptr) {
        if (!in_flight.idle()) return nullptr;
        make_room(found.file_bytes);
        image.bytes = found.file_bytes;
        if (!map(process, found, context, image)) return nullptr;
    }
    if (found.file_offset > image.bytes || found.bytes > image.bytes - found.file_offset) return nullptr;
    return image.mapping + found.file_offset;
}

void forget(CUcontext context) noexcept {
    for (auto& image : images()) {
        if (image.mapping == nullptr || image.context != context) continue;
        image.context = nullptr;
        pinned::give_back(image.bytes);
        unmap(image);
    }
}

}  // namespace hpe::ipc::other_images
