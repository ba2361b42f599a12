// SPDX-License-Identifier: MIT
// Kernel launches: their checks, their parameters, and the run itself.
#include "toolchain/softgpu/driver/launch/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/launch/function.h"
#include "toolchain/softgpu/driver/launch/kernel_memory.h"
#include "toolchain/softgpu/driver/module/library.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {
namespace {

std::atomic<std::uint64_t> last_launch{0};

void check_shape(KernelFunction& function, const Dim3& grid, const Dim3& block, unsigned dynamic_shared,
                 bool cooperative) {
    const std::uint32_t blocks[3] = {grid.x, grid.y, grid.z}, threads[3] = {block.x, block.y, block.z};
    for (int i = 0; i < 3; ++i) {
        require(blocks[i] > 0 && blocks[i] <= max_grid_dim[i]);
        require(threads[i] > 0 && threads[i] <= max_block_dim[i]);
    }
    const std::uint64_t in_block = std::uint64_t{block.x} * block.y * block.z;
    require(in_block <= function.info().max_threads && in_block <= max_threads_per_block);
    // Of a cooperative launch that is asked for as room for its blocks.
    require(dynamic_shared <= most_dynamic_shared(function),
            cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE);
    if (!cooperative) return;
    // Every block must be resident at once.
    const std::uint64_t room = std::uint64_t{multiprocessors} *
                               blocks_per_multiprocessor_of(function, static_cast<unsigned>(in_block), dynamic_shared);
    // Without overflow: the product of two dimensions stays below 2^47.
    const std::uint64_t rows = std::uint64_t{grid.x} * grid.y;
    require(rows <= room && rows * grid.z <= room, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

std::vector<std::byte> packed(const KernelInfo& info, void* const* extra) {
    const void* buffer = nullptr;
    std::size_t size = 0;
    bool sized = false;
    for (std::size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[i + 1];
        } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            require(extra[i + 1] != nullptr);
            size = *static_cast<const std::size_t*>(extra[i + 1]);
            sized = true;
        } else {
            fail(CUDA_ERROR_INVALID_VALUE);
        }
    }
    require(sized && (buffer || info.parameter_bytes == 0));
    require(size <= info.parameter_bytes, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    std::vector<std::byte> bytes(info.parameter_bytes);  // a buffer may end early
    if (size != 0) std::memcpy(bytes.data(), buffer, size);
    return bytes;
}

std::vector<std::byte> gathered(const KernelInfo& info, void* const* parameters) {
    require(parameters != nullptr || info.parameters.empty());
    std::vector<std::byte> bytes(info.parameter_bytes);
    for (std::size_t i = 0; i < info.parameters.size(); ++i) {
        const Parameter& p = info.parameters[i];
        require(parameters[i] != nullptr);
        std::memcpy(bytes.data() + p.offset, parameters[i], p.size);
    }
    return bytes;
}

// A kernel of a library runs where the stream is; a function belongs to one context.
std::shared_ptr<KernelFunction> function_for(CUfunction handle, Stream& stream) {
    if (const auto kernel = driver().kernels.find(handle)) return function_in(stream.context, *kernel);
    auto function = function_of(handle);
    require(&function->context == &stream.context, CUDA_ERROR_INVALID_HANDLE);
    return function;
}

CUresult launch(CUfunction handle, Dim3 grid, Dim3 block, unsigned dynamic_shared, CUstream stream_handle,
                void* const* parameters, void* const* extra, bool cooperative) {
    const auto stream = stream_of(stream_handle);
    try {
        submit(*stream, kernel_operation(function_for(handle, *stream), grid, block, dynamic_shared, cooperative,
                                         parameters, extra));
    } catch (const Error&) {
        invalidate_capture_of(*stream);  // a launch that cannot be leaves no half of a graph
        throw;
    }
    return CUDA_SUCCESS;
}

// May a grid be cut into clusters of that size?
template <class Size>
bool divides(const Size& cluster, const CUlaunchConfig& config) {
    constexpr std::uint64_t most_blocks = 8;  // that every device has
    const auto into = [](unsigned part, unsigned whole) { return part != 0 && whole % part == 0; };
    return std::uint64_t{cluster.x} * cluster.y * cluster.z <= most_blocks && into(cluster.x, config.gridDimX) &&
           into(cluster.y, config.gridDimY) && into(cluster.z, config.gridDimZ);
}

// What an attribute asks for beyond a plain launch. Hints about speed are taken without effect.
CUresult apply(const CUlaunchAttribute& attribute, const CUlaunchConfig& config, bool& cooperative) {
    const CUlaunchAttributeValue& value = attribute.value;
    switch (attribute.id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        // Permission to start before the work ahead is done; it is never made use of.
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: cooperative = value.cooperative != 0; return CUDA_SUCCESS;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: {
            const auto& d = value.clusterDim;
            if (d.x <= 1 && d.y <= 1 && d.z <= 1) return CUDA_SUCCESS;
            if (!divides(d, config)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            return not_supported("cuLaunchKernelEx with clusters of blocks");
        }
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return not_supported("cuLaunchKernelEx of a node that kernels may update");
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            if (!value.programmaticEvent.event) return CUDA_ERROR_INVALID_HANDLE;
            return not_supported("cuLaunchKernelEx with an event of its own");
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
            if (!value.launchCompletionEvent.event) return CUDA_ERROR_INVALID_HANDLE;
            return not_supported("cuLaunchKernelEx with an event of its own");
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

}  // namespace

KernelOp kernel_operation(std::shared_ptr<KernelFunction> function, Dim3 grid, Dim3 block, unsigned dynamic_shared,
                          bool cooperative, void* const* parameters, void* const* extra) {
    require(parameters == nullptr || extra == nullptr);
    const KernelInfo& info = function->info();
    check_shape(*function, grid, block, dynamic_shared, cooperative);
    KernelOp operation;
    operation.parameters = extra ? packed(info, extra) : gathered(info, parameters);
    operation.function = std::move(function);
    operation.grid = grid;
    operation.block = block;
    operation.dynamic_shared = dynamic_shared;
    operation.cooperative = cooperative;
    return operation;
}

CUresult run(Context& context, const KernelOp& operation) {
    Launch launch;
    launch.grid = operation.grid;
    launch.block = operation.block;
    launch.dynamic_shared_bytes = operation.dynamic_shared;
    launch.cooperative = operation.cooperative;
    launch.parameters = operation.parameters;
    launch.launch_id = ++last_launch;
    {
        const std::lock_guard lock(driver().order);
        launch.stack_bytes = static_cast<std::uint32_t>(context.limits[CU_LIMIT_STACK_SIZE]);
    }
    const KernelMemory memory(context, operation.conditionals.get());
    const Failure failure = operation.function->program->run(operation.function->name, launch, memory);
    if (!failure) return CUDA_SUCCESS;
    complain("%s", failure.message.c_str());
    // The shape was checked when the kernel was launched: what is left is a host without memory for its blocks.
    if (failure.fault == Fault::InvalidLaunch) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    return error_of(failure.fault);
}

CUresult api::cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                             void** extra) {
    return launch(f, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, parameters, extra, false);
}

CUresult api::cuLaunchCooperativeKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                        CUstream stream, void** parameters) {
    return launch(f, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream, parameters, nullptr, true);
}

CUresult api::cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra) {
    require(config != nullptr && (config->attrs != nullptr || config->numAttrs == 0));
    bool cooperative = false;
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (const CUresult result = apply(config->attrs[i], *config, cooperative); result != CUDA_SUCCESS)
            return result;
    return launch(f, {config->gridDimX, config->gridDimY, config->gridDimZ},
                  {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, config->hStream,
                  parameters, extra, cooperative);
}

}  // namespace hpe::soft
