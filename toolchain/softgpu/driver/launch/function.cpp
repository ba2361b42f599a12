// SPDX-License-Identifier: MIT
// What can be asked of and set on a kernel's function, and how many of its blocks fit on a multiprocessor.
#include "toolchain/softgpu/driver/launch/function.h"

#include <algorithm>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/module/library.h"

namespace hpe::soft {
namespace {

// Shared memory that the system takes of each block.
unsigned reserved_shared() { return capability().shared_per_multiprocessor - capability().shared_per_block_optin; }

// Registers of PTX are virtual and many; a compiler keeps them within what the largest block leaves each thread.
unsigned registers_of(const KernelInfo& info) {
    const unsigned most = std::min(registers_per_block / std::max(info.max_threads, 1u), 255u);
    return std::min(std::max(info.registers, 1u), most);
}

int constant_bytes(const Program& program) {
    std::uint64_t bytes = 0;
    for (const Variable& v : program.variables())
        if (v.constant) bytes += v.size;
    return static_cast<int>(std::min<std::uint64_t>(bytes, 64 << 10));
}

std::size_t dynamic_shared_of(CUoccupancyB2DSize per_block, std::size_t fixed, unsigned threads) {
    return per_block ? per_block(static_cast<int>(threads)) : fixed;
}

CUresult max_blocks(int* out, CUfunction handle, int threads, std::size_t dynamic_shared, unsigned flags) {
    require(out != nullptr && threads > 0 && (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) == 0);
    current();
    *out = static_cast<int>(
        blocks_per_multiprocessor_of(*function_of(handle), static_cast<unsigned>(threads), dynamic_shared));
    return CUDA_SUCCESS;
}

// The block size that keeps the most threads of a multiprocessor busy; among equals the largest.
CUresult potential_block_size(int* min_grid, int* best_block, CUfunction handle, CUoccupancyB2DSize per_block,
                              std::size_t fixed, int limit, unsigned flags) {
    require(min_grid != nullptr && best_block != nullptr);
    require(limit >= 0 && (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) == 0);
    const auto function = function_of(handle);
    unsigned most = function->info().max_threads;
    if (limit > 0) most = std::min(most, static_cast<unsigned>(limit));
    unsigned best = 0, best_blocks = 0;
    // Whole warps, and the limit itself when it is none.
    for (unsigned threads = most; threads > 0; threads = (threads - 1) / 32 * 32) {
        const unsigned blocks =
            blocks_per_multiprocessor_of(*function, threads, dynamic_shared_of(per_block, fixed, threads));
        if (blocks * threads > best_blocks * best) {
            best = threads;
            best_blocks = blocks;
        }
    }
    *best_block = static_cast<int>(best);
    *min_grid = static_cast<int>(best_blocks * multiprocessors);
    return CUDA_SUCCESS;
}

}  // namespace

unsigned most_dynamic_shared(KernelFunction& function) {
    if (const int allowed = function.max_dynamic_shared; allowed >= 0) return static_cast<unsigned>(allowed);
    const unsigned fixed = function.info().static_shared_bytes;
    return fixed < shared_per_block ? shared_per_block - fixed : 0;
}

unsigned blocks_per_multiprocessor_of(KernelFunction& function, unsigned threads, std::size_t dynamic_shared) {
    const KernelInfo& info = function.info();
    // The bounds of the kernel itself do not count, those of the device do.
    if (threads == 0 || threads > max_threads_per_block || dynamic_shared > most_dynamic_shared(function)) return 0;
    const unsigned warps = (threads + 31) / 32;
    unsigned blocks =
        std::min(capability().blocks_per_multiprocessor, capability().threads_per_multiprocessor / (warps * 32));
    blocks = std::min(
        blocks, registers_per_block / (round_up(registers_of(info), 8) * warps * 32) == 0
                    ? 1u
                    : static_cast<unsigned>(registers_per_block / (round_up(registers_of(info), 8) * warps * 32)));
    const std::uint64_t shared = round_up(info.static_shared_bytes + dynamic_shared, 128) + reserved_shared();
    if (shared == 0) return blocks;
    return std::min(blocks, static_cast<unsigned>(capability().shared_per_multiprocessor / shared));
}

CUresult api::cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    require(value != nullptr && attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
    const auto function = function_itself(handle);
    const KernelInfo& info = function->info();
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = static_cast<int>(info.max_threads); break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(info.static_shared_bytes); break;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = constant_bytes(*function->program); break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(info.local_bytes); break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = static_cast<int>(registers_of(info)); break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = function->program->target(); break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = capability().number; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = static_cast<int>(most_dynamic_shared(*function));
            break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = function->shared_carveout; break;
        default: *value = 0; break;  // clusters of blocks: none required
    }
    return CUDA_SUCCESS;
}

CUresult api::cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    const auto function = function_of(handle);
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            require(value >= 0 && static_cast<unsigned>(value) + function->info().static_shared_bytes <=
                                      capability().shared_per_block_optin);
            function->max_dynamic_shared = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            require(value >= -1 && value <= 100);
            function->shared_carveout = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            if (value == 0) return CUDA_SUCCESS;
            return not_supported("cuFuncSetAttribute for clusters of blocks");
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult api::cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
    function_of(handle);
    require(config <= CU_FUNC_CACHE_PREFER_EQUAL);
    return CUDA_SUCCESS;
}

CUresult api::cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
    function_of(handle);
    require(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    return CUDA_SUCCESS;
}

CUresult api::cuFuncGetModule(CUmodule* module, CUfunction handle) {
    require(module != nullptr && handle != nullptr);
    *module = function_itself(handle)->module->handle();
    return CUDA_SUCCESS;
}

CUresult api::cuFuncGetName(const char** name, CUfunction handle) {
    require(name != nullptr);
    *name = function_itself(handle)->name.c_str();
    return CUDA_SUCCESS;
}

CUresult api::cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
    require(offset != nullptr);
    const auto function = function_itself(handle);
    const auto& parameters = function->info().parameters;
    require(index < parameters.size());
    *offset = parameters[index].offset;
    if (size) *size = parameters[index].size;
    return CUDA_SUCCESS;
}

CUresult api::cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
    require(state != nullptr);
    *state = function_itself(handle)->loaded ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult api::cuFuncLoad(CUfunction handle) {
    function_of(handle)->info();
    return CUDA_SUCCESS;
}

CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
    return max_blocks(blocks, handle, threads, shared, 0);
}
CUresult api::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                                   size_t shared, unsigned flags) {
    return max_blocks(blocks, handle, threads, shared, flags);
}

CUresult api::cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction handle,
                                               CUoccupancyB2DSize per_block, size_t shared, int limit) {
    return potential_block_size(min_grid, block, handle, per_block, shared, limit, 0);
}
CUresult api::cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction handle,
                                                        CUoccupancyB2DSize per_block, size_t shared, int limit,
                                                        unsigned flags) {
    return potential_block_size(min_grid, block, handle, per_block, shared, limit, flags);
}

CUresult api::cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
    require(bytes != nullptr && blocks > 0 && threads > 0);
    const auto function = function_of(handle);
    require(static_cast<unsigned>(blocks) <=
            blocks_per_multiprocessor_of(*function, static_cast<unsigned>(threads), 0));
    const std::uint64_t share = capability().shared_per_multiprocessor / static_cast<unsigned>(blocks) / 128 * 128;
    const std::uint64_t taken = function->info().static_shared_bytes + reserved_shared();
    const std::uint64_t left = share > taken ? share - taken : 0;
    *bytes = std::min<std::uint64_t>(left, most_dynamic_shared(*function));
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
