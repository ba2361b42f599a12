// SPDX-License-Identifier: MIT
// Which device and context a runtime call works on: the context that is current to the calling thread if there is one
// (a program may mix in the driver API), otherwise the primary context of the thread's current device, made when first
// needed.
#pragma once

#include "driver.h"

namespace hpe::soft::cudart {

// Makes sure that the calling thread has a context.
cudaError_t ensure_context(const Driver& d);
// A program may reset a primary context through the driver, unknown to the runtime, which then goes on with a new one.
// False: the calling thread's context is not such a one.
bool renew_context(const Driver& d);

cudaError_t current_device(const Driver& d, int& device);
// The primary context of a device, retained once for the whole process.
cudaError_t primary_context(const Driver& d, int device, CUcontext& context);
// The device becomes the thread's; its primary context becomes current.
cudaError_t set_device(const Driver& d, int device);
// Destroys the primary context of the thread's current device.
cudaError_t reset_device(const Driver& d);

// cudaErrorInvalidDevice, or the handle of a device.
cudaError_t device_handle(const Driver& d, int device, CUdevice& handle);

}  // namespace hpe::soft::cudart
