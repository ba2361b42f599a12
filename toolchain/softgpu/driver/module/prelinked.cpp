// SPDX-License-Identifier: MIT
// Programs compiled in parts (nvcc -rdc=true): the PTX of all parts becomes one module when the program is loaded,
// whether nvcc has linked their machine code or has left that to the driver.
#include "toolchain/softgpu/driver/module/prelinked.h"

#include "toolchain/ptx/link.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/module/image.h"

namespace hpe::soft {
namespace {

// nvcc adds CUDA's device runtime to programs, used or not. It stands on functions of NVIDIA's driver that are nowhere
// documented, so it is left out.
bool is_device_runtime(const fatbin::Ptx& ptx) {
    return ptx.text.find("__CNPRT_VERSION_NUMBER__") != std::string::npos;
}

}  // namespace

fatbin::Ptx linked_ptx_of(const void* image, const HostSymbols& given, std::string& why) {
    const std::vector<const void*> parts = fatbin::prelinked(image);
    if (parts.empty()) return ptx_of(image, why);
    bool runtime = false;
    std::vector<ptx::LinkInput> inputs;
    fatbin::Ptx linked;
    for (std::size_t n = 0; n < parts.size(); ++n) {
        const std::string called = "part " + std::to_string(n + 1);
        const auto in_part = [&](CUresult code) {
            why.insert(0, called + ": ");
            fail(code);
        };
        fatbin::Ptx ptx;
        try {
            // Of the runtime, toolkits have PTX for the newest devices only.
            ptx = ptx_of(parts[n], why, true);
            if (is_device_runtime(ptx)) {
                runtime = true;
                continue;
            }
            if (ptx.arch > capability().number) ptx_of(parts[n], why);
        } catch (const Error& error) {
            in_part(error.code);
        }
        auto module = ptx::parse(ptx.text, why);
        if (!module || !ptx::verify(*module, why)) {
            why.insert(0, "PTX ");
            in_part(CUDA_ERROR_INVALID_PTX);
        }
        inputs.push_back({std::move(module), called});
        linked = std::move(ptx);
    }
    const bool one = inputs.size() == 1;
    const auto module = ptx::link(
        std::move(inputs),
        [&](const std::string& name) {
            return is_device_function(name) || given.contains(name) || (runtime && is_device_runtime_function(name));
        },
        why);
    if (!module) {
        for (auto at = why.find('\n'); at != std::string::npos; at = why.find('\n')) why.replace(at, 1, "; ");
        fail(CUDA_ERROR_INVALID_PTX);
    }
    if (one) return linked;
    return {ptx::print(*module), module->target_arch()};
}

}  // namespace hpe::soft
