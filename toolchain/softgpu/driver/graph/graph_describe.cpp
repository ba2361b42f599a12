// SPDX-License-Identifier: MIT
// Operations of captured nodes in the words of the API.
#include "toolchain/softgpu/driver/graph/graph_describe.h"

#include "toolchain/softgpu/driver/memory/array.h"
#include "toolchain/softgpu/driver/memory/memory.h"

namespace hpe::soft {

CUDA_MEMCPY3D describe(const CopyOp& op) {
    CUDA_MEMCPY3D d{};
    const auto type_of = [&](const CopyEnd& end) {
        switch (place_of(end.address, op.span(end))) {
            case Place::OnDevice: return CU_MEMORYTYPE_DEVICE;
            case Place::Managed: return CU_MEMORYTYPE_UNIFIED;
            default: return CU_MEMORYTYPE_HOST;
        }
    };
    const auto position = [](const Array& array, const CopyEnd& end, std::size_t& x, std::size_t& y, std::size_t& z) {
        const std::size_t offset = end.address - array.address;
        x = offset % array.pitch, y = offset % array.slice() / array.pitch, z = offset / array.slice();
        return array.handle();
    };
    const auto from_array = array_at(op.from.address), to_array = array_at(op.to.address);
    d.srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : type_of(op.from);
    d.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : type_of(op.to);
    if (from_array)
        d.srcArray = position(*from_array, op.from, d.srcXInBytes, d.srcY, d.srcZ);
    else if (d.srcMemoryType == CU_MEMORYTYPE_HOST)
        d.srcHost = reinterpret_cast<const void*>(op.from.address);
    else
        d.srcDevice = op.from.address;
    if (to_array)
        d.dstArray = position(*to_array, op.to, d.dstXInBytes, d.dstY, d.dstZ);
    else if (d.dstMemoryType == CU_MEMORYTYPE_HOST)
        d.dstHost = reinterpret_cast<void*>(op.to.address);
    else
        d.dstDevice = op.to.address;
    d.WidthInBytes = op.width;
    d.Height = op.height;
    d.Depth = op.depth;
    if (op.height > 1 || op.depth > 1) {
        if (!from_array) d.srcPitch = op.from.pitch;
        if (!to_array) d.dstPitch = op.to.pitch;
        if (d.srcPitch) d.srcHeight = op.from.slice / op.from.pitch;
        if (d.dstPitch) d.dstHeight = op.to.slice / op.to.pitch;
    }
    return d;
}

std::vector<CUstreamBatchMemOpParams> describe(const ValueOps& operations) {
    std::vector<CUstreamBatchMemOpParams> all;
    for (const ValueOp& op : operations.list) {
        CUstreamBatchMemOpParams p{};
        if (op.write) {
            p.writeValue.operation = op.wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
            p.writeValue.address = op.address;
            p.writeValue.value64 = op.value;
        } else {
            p.waitValue.operation = op.wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
            p.waitValue.address = op.address;
            p.waitValue.value64 = op.value;
            p.waitValue.flags = op.wait;
        }
        all.push_back(p);
    }
    return all;
}

}  // namespace hpe::soft
