// SPDX-License-Identifier: MIT
// One page that all processes map.
#include "toolchain/softgpu/driver/stream/shared_event.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {

void SharedMark::reach(std::uint64_t record) {
    std::uint64_t before = done.load();
    while (before < record && !done.compare_exchange_weak(before, record, std::memory_order_acq_rel)) {
    }
}

void SharedMark::wait(std::uint64_t record, const Context& context) const {
    std::chrono::microseconds pause{10};
    while (!reached(record) && !context.ending()) {
        std::this_thread::sleep_for(pause);
        pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds{1});
    }
}

std::shared_ptr<SharedEvent> SharedEvent::make(int file) {
    if (file < 0) {
        file = memfd_create("soft-device-event", MFD_CLOEXEC);
        if (file >= 0 && ftruncate(file, host_page) != 0) {
            close(file);
            file = -1;
        }
        require(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    }
    void* const page = mmap(nullptr, host_page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) {
        close(file);
        fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    madvise(page, host_page, MADV_DONTFORK);
    return std::shared_ptr<SharedEvent>(new SharedEvent(file, static_cast<SharedMark*>(page)));
}

SharedEvent::~SharedEvent() {
    munmap(mark_, host_page);
    close(file_);
}

}  // namespace hpe::soft
