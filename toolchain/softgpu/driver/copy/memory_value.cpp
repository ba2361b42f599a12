// SPDX-License-Identifier: MIT
// Values in memory that streams write and wait for.
#include "toolchain/softgpu/driver/copy/memory_value.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "toolchain/softgpu/driver/context/context.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/stream.h"
#include "toolchain/softgpu/driver/stream/submit.h"

namespace hpe::soft {
namespace {

constexpr unsigned most_operations = 255;  // the manual says 256, an H200 refuses them

// The cell at the address; nullptr when the memory is gone. Looked up each time, because a wait may be long.
std::byte* cell(const ValueOp& op) {
    const std::uint64_t size = op.wide ? 8 : 4;
    std::uint64_t contiguous = 0;
    std::byte* bytes = bytes_at(op.address, size, contiguous, op.write);
    return contiguous == size ? bytes : nullptr;
}

template <class Number>
std::atomic_ref<Number> number_at(std::byte* bytes) {
    return std::atomic_ref<Number>(*reinterpret_cast<Number*>(bytes));
}

template <class Number>
bool satisfied(Number found, Number wanted, unsigned wait) {
    switch (wait) {
        case CU_STREAM_WAIT_VALUE_EQ: return found == wanted;
        case CU_STREAM_WAIT_VALUE_AND: return (found & wanted) != 0;
        case CU_STREAM_WAIT_VALUE_NOR: return static_cast<Number>(~(found | wanted)) != 0;
        default: return static_cast<std::make_signed_t<Number>>(found - wanted) >= 0;  // cyclic
    }
}

bool satisfied(const ValueOp& op, std::byte* bytes) {
    if (op.wide)
        return satisfied<std::uint64_t>(number_at<std::uint64_t>(bytes).load(std::memory_order_acquire), op.value,
                                        op.wait);
    return satisfied<std::uint32_t>(number_at<std::uint32_t>(bytes).load(std::memory_order_acquire),
                                    static_cast<std::uint32_t>(op.value), op.wait);
}

CUresult wait(Context& context, const ValueOp& op) {
    // Short waits are usual, long ones must not cost a core.
    constexpr auto longest_pause = std::chrono::microseconds(1000);
    auto pause = std::chrono::microseconds(1);
    for (unsigned round = 0;; ++round) {
        std::byte* bytes = cell(op);
        if (!bytes) return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (satisfied(op, bytes)) return CUDA_SUCCESS;
        if (context.ending() || context.sticky() != CUDA_SUCCESS || life() != Life::Ready) return CUDA_SUCCESS;
        if (round < 16) {
            std::this_thread::yield();
            continue;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, longest_pause);
    }
}

CUresult write(const ValueOp& op) {
    std::byte* bytes = cell(op);
    if (!bytes) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (op.wide)
        number_at<std::uint64_t>(bytes).store(op.value, std::memory_order_release);
    else
        number_at<std::uint32_t>(bytes).store(static_cast<std::uint32_t>(op.value), std::memory_order_release);
    return CUDA_SUCCESS;
}

ValueOp checked(const ValueOp& op) {
    const std::uint64_t size = op.wide ? 8 : 4;
    require(op.address != 0 && op.address % size == 0);
    require(place_of(op.address, size) != Place::Pageable);
    return op;
}

ValueOp wait_operation(std::uint64_t address, std::uint64_t value, bool wide, unsigned flags) {
    if (flags & CU_STREAM_WAIT_VALUE_FLUSH) fail(not_supported("cuStreamWaitValue with a flush of remote writes"));
    require(flags <= CU_STREAM_WAIT_VALUE_NOR);
    return checked({address, value, wide, false, flags});
}

ValueOp write_operation(std::uint64_t address, std::uint64_t value, bool wide, unsigned flags) {
    require((flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) == 0);
    return checked({address, value, wide, true, 0});
}

CUresult put(CUstream handle, ValueOps operations) {
    const auto stream = stream_of(handle);
    if (!operations.list.empty()) submit(*stream, std::move(operations));
    return CUDA_SUCCESS;
}

CUresult wait_value(CUstream stream, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    stream_of(stream);
    return put(stream, {{wait_operation(address, value, wide, flags)}});
}
CUresult write_value(CUstream stream, CUdeviceptr address, std::uint64_t value, bool wide, unsigned flags) {
    stream_of(stream);
    return put(stream, {{write_operation(address, value, wide, flags)}});
}

}  // namespace

ValueOps value_operations(unsigned count, const CUstreamBatchMemOpParams* parameters, unsigned flags) {
    require(count <= most_operations && flags == 0 && (parameters != nullptr || count == 0));
    ValueOps operations;
    for (unsigned i = 0; i < count; ++i) {
        const CUstreamBatchMemOpParams& p = parameters[i];
        switch (p.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                operations.list.push_back(
                    wait_operation(p.waitValue.address, p.waitValue.value, false, p.waitValue.flags));
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                operations.list.push_back(
                    wait_operation(p.waitValue.address, p.waitValue.value64, true, p.waitValue.flags));
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                operations.list.push_back(
                    write_operation(p.writeValue.address, p.writeValue.value, false, p.writeValue.flags));
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                operations.list.push_back(
                    write_operation(p.writeValue.address, p.writeValue.value64, true, p.writeValue.flags));
                break;
            // Every operation is complete and visible before the next one starts.
            case CU_STREAM_MEM_OP_BARRIER: require(p.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU); break;
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                fail(not_supported("cuStreamBatchMemOp with a flush of remote writes"));
            default: fail(CUDA_ERROR_INVALID_VALUE);
        }
    }
    return operations;
}

CUresult run(Context& context, const ValueOps& operations) {
    for (const ValueOp& op : operations.list) {
        const CUresult result = op.write ? write(op) : wait(context, op);
        if (result != CUDA_SUCCESS) return result;
        // A wait that was given up because of an error must not let the writes behind it through.
        if (context.ending() || context.sticky() != CUDA_SUCCESS) return CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

CUresult api::cuStreamWaitValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return wait_value(s, address, value, false, flags);
}
CUresult api::cuStreamWaitValue32(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return wait_value(s, address, value, false, flags);
}
CUresult api::cuStreamWaitValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return wait_value(s, address, value, true, flags);
}
CUresult api::cuStreamWaitValue64(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return wait_value(s, address, value, true, flags);
}
CUresult api::cuStreamWriteValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return write_value(s, address, value, false, flags);
}
CUresult api::cuStreamWriteValue32(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return write_value(s, address, value, false, flags);
}
CUresult api::cuStreamWriteValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return write_value(s, address, value, true, flags);
}
CUresult api::cuStreamWriteValue64(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return write_value(s, address, value, true, flags);
}

CUresult api::cuStreamBatchMemOp_v2(CUstream s, unsigned count, CUstreamBatchMemOpParams* parameters, unsigned flags) {
    stream_of(s);
    return put(s, value_operations(count, parameters, flags));
}
CUresult api::cuStreamBatchMemOp(CUstream s, unsigned count, CUstreamBatchMemOpParams* parameters, unsigned flags) {
    return api::cuStreamBatchMemOp_v2(s, count, parameters, flags);
}

}  // namespace hpe::soft
