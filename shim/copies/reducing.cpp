// SPDX-License-Identifier: MIT
// The kernels of a context, made from one text.
#include "shim/copies/reducing.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>

#include "shim/copies/own_work.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/own_kernel.h"

namespace hpe::reducing {

namespace {

constexpr std::string_view kKernel =
#include "shim/copies/reduce_kernel.inc"
    ;

// Three sorts of numbers of two sizes.
constexpr std::size_t kKernels = 3 * 2 * kOperations;
std::size_t index(const Reduction& reduction) noexcept {
    return (static_cast<std::size_t>(reduction.numbers) * 2 + (reduction.bytes == 8 ? 1 : 0)) * kOperations +
           static_cast<std::size_t>(reduction.operation);
}

constinit ByContext<std::array<OwnKernel, kKernels>> all_kernels;

void replace(std::string& text, std::string_view what, std::string_view by) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
}

std::string instruction(const Reduction& reduction, const std::string& type, const std::string& bits) {
    const bool floating = reduction.numbers == Numbers::Floating;
    switch (reduction.operation) {
        case Operation::Sum: return (floating ? "add.rn." : "add.") + type;
        case Operation::Product: return (floating ? "mul.rn." : "mul.lo.") + type;
        case Operation::Least: return "min." + type;
        case Operation::Greatest: return "max." + type;
        case Operation::And: return "and." + bits;
        case Operation::Or: return "or." + bits;
        case Operation::Xor: return "xor." + bits;
    }
    return {};
}

// The device makes one NaN of all; a processor keeps that of an operand, and has a negative one for what is no number.
constexpr std::string_view kNan = R"(
    mov.BITS %bits_y, %y?;
    or.BITS %bits_y, %bits_y, QUIET;
    setp.nan.TYPE %of_y, %y?, %y?;
    selp.BITS %bits_y, %bits_y, NONE, %of_y;
    mov.BITS %bits_x, %x?;
    or.BITS %bits_x, %bits_x, QUIET;
    setp.nan.TYPE %of_x, %x?, %x?;
    selp.BITS %bits_x, %bits_x, %bits_y, %of_x;
    mov.BITS %nan, %bits_x;
    setp.nan.TYPE %p, %z?, %z?;
    selp.TYPE %z?, %nan, %z?, %p;)";

std::string kernel_text(const Reduction& reduction) {
    const bool wide = reduction.bytes == 8;
    const std::string size = wide ? "64" : "32", bits = "b" + size;
    const std::string sorts[] = {"s", "u", "f"};
    const std::string type = sorts[static_cast<std::size_t>(reduction.numbers)] + size;
    std::string combine = instruction(reduction, type, bits) + " %z?, %x?, %y?;";
    if (reduction.numbers == Numbers::Floating) combine += kNan;
    std::string first = combine;
    replace(first, "?", "0");
    std::string text(kKernel.substr(kKernel.find(".version")));
    replace(text, "COMBINE0", first);
    replace(text, "COMBINE", combine);
    constexpr std::string_view kEach = "EACH\n", kOnce = "ONCE\n";
    for (auto at = text.find(kEach); at != std::string::npos; at = text.find(kEach)) {
        const auto begin = at + kEach.size(), end = text.find(kOnce, begin);
        std::string all;
        for (const char* digit : {"0", "1", "2", "3"}) {
            std::string one = text.substr(begin, end - begin);
            replace(one, "?", digit);
            all += one;
        }
        text.replace(at, end + kOnce.size() - at, all);
    }
    replace(text, "QUIET", wide ? "0x0008000000000000" : "0x00400000");
    replace(text, "NONE", wide ? "0xfff8000000000000" : "0xffc00000");
    replace(text, "TYPE", type);
    replace(text, "BITS", bits);
    replace(text, "SIZE", wide ? "8" : "4");
    return text;
}

// The context is current.
CUfunction kernel_of(const Reduction& reduction, void* context) noexcept try {
    auto* const kernels = all_kernels.of(static_cast<CUcontext>(context));
    if (kernels == nullptr) return nullptr;
    auto& kernel = (*kernels)[index(reduction)];
    if (kernel.loaded() != nullptr) return kernel.loaded();
    return kernel.load(kernel_text(reduction).c_str(), "hpe_reduce");
} catch (const std::bad_alloc&) {
    return nullptr;
}

CUresult launch(CUfunction kernel, CUstream stream, Operands operands, std::size_t count) noexcept {
    constexpr std::size_t kThreads = 256, kMostBlocks = 2048;
    void* parameters[] = {&operands.to, &operands.first, &operands.second, &count};
    const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
    return driver.cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace

bool prepare(const Reduction& reduction, void* context, DeviceRange reads) noexcept {
    OwnWork work(context);
    return work && kernel_of(reduction, context) != nullptr &&
           work.run(reads, {}, [] { return CUDA_SUCCESS; }) == CUDA_SUCCESS;
}

bool combine(const Reduction& reduction, void* context, std::span<const Operands> all, std::size_t count,
             DeviceRange reads, DeviceRange writes) noexcept {
    OwnWork work(context, bulk::Order::AtOnce);
    CUfunction const kernel = work ? kernel_of(reduction, context) : nullptr;
    return kernel != nullptr && work.run(reads, writes, [&] {
        auto result = CUDA_SUCCESS;
        for (const auto& operands : all) {
            if (result == CUDA_SUCCESS && count != 0) result = launch(kernel, work.stream(), operands, count);
        }
        return result;
    }) == CUDA_SUCCESS;
}

bool copy(void* context, std::span<const Piece> all, DeviceRange writes) noexcept {
    OwnWork work(context, bulk::Order::AtOnce);
    return work && work.run({}, writes, [&] {
        auto result = CUDA_SUCCESS;
        for (const auto& piece : all) {
            if (result == CUDA_SUCCESS && piece.bytes != 0)
                result = driver.cuMemcpyDtoDAsync_v2(piece.to, piece.from, piece.bytes, work.stream());
        }
        return result;
    }) == CUDA_SUCCESS;
}

void forget(CUcontext context) noexcept {
    auto* const kernels = all_kernels.known(context);
    if (kernels == nullptr) return;
    for (auto& kernel : *kernels) kernel.forget();
}

}  // namespace hpe::reducing
