// SPDX-License-Identifier: MIT
// Where the driver's state is.
#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

Driver* the_driver = nullptr;  // published by set_life(Ready), never freed

}  // namespace

void set_driver(std::unique_ptr<Driver> made) { the_driver = made.release(); }
Driver& driver() { return *the_driver; }

bool is_device(int ordinal) { return ordinal >= 0 && static_cast<std::size_t>(ordinal) < driver().devices.size(); }

Device& device_at(CUdevice ordinal) {
    require(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    return *driver().devices[static_cast<std::size_t>(ordinal)];
}

}  // namespace hpe::soft
