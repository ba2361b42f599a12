// SPDX-License-Identifier: MIT
// Many copies in one call: they keep the order of the stream as a whole, and have none among themselves. And managed
// memory whose contents are given up in one call.
#include "toolchain/softgpu/driver/memory/memory.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {
namespace {

void check_order(CUmemcpySrcAccessOrder order, unsigned flags) {
    require(order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
            order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
    require((flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) == 0);
}

void check_stream(CUstream stream) {
    const bool legacy = stream == CU_STREAM_LEGACY || (stream == nullptr && !Call::per_thread_default_stream());
    require(!legacy);
}

// One batch on its way into a stream.
class Batch {
public:
    // A batch becomes no node, but the capture goes on.
    explicit Batch(CUstream handle) : handle_(handle), stream_(stream_of(handle)) {
        require(!is_capturing(*stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }

    // Pageable memory is read when the copy is asked for, which is not always when the stream gets there.
    void before(std::uint64_t source, std::uint64_t bytes, CUmemcpySrcAccessOrder order) {
        if (bytes == 0) return;
        const Place place = place_of(source, bytes);
        if (place == Place::Pageable && order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) synchronize(*stream_);
        if (place != Place::OnDevice && place != Place::Pageable && order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
            waits_ = true;
    }
    void finish() {
        if (waits_) synchronize(*stream_);
    }
    CUstream handle() const { return handle_; }

private:
    const CUstream handle_;
    const std::shared_ptr<Stream> stream_;
    bool waits_ = false;
};

void done(CUresult result) { require(result == CUDA_SUCCESS, result); }

CUresult copy_lines(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count,
                    CUmemcpyAttributes* attributes, std::size_t* first, std::size_t attribute_count, CUstream stream) {
    require(to && from && sizes && count > 0 && attributes && first);
    require(attribute_count > 0 && attribute_count <= count && first[0] == 0);
    check_stream(stream);
    for (std::size_t i = 0; i < attribute_count; ++i) {
        require(first[i] < count && (i == 0 || first[i] > first[i - 1]));
        check_order(attributes[i].srcAccessOrder, attributes[i].flags);
    }
    Batch batch(stream);
    for (std::size_t i = 0; i < count; ++i) require(sizes[i] != 0 && to[i] != 0 && from[i] != 0);
    // The copies ahead of one that cannot be are done.
    std::size_t which = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (which + 1 < attribute_count && first[which + 1] == i) ++which;
        batch.before(from[i], sizes[i], attributes[which].srcAccessOrder);
        done(api::cuMemcpyAsync(to[i], from[i], sizes[i], stream));
    }
    batch.finish();
    return CUDA_SUCCESS;
}

// Between pointers the elements are bytes.
CUDA_MEMCPY3D described(const CUDA_MEMCPY3D_BATCH_OP& op) {
    for (const CUmemcpy3DOperand* operand : {&op.src, &op.dst}) {
        require(operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER || operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY);
        if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) fail(not_supported("cuMemcpy3DBatchAsync of a CUDA array"));
    }
    require(op.extent.width > 0 && op.extent.height > 0 && op.extent.depth > 0);
    check_order(op.srcAccessOrder, op.flags);
    CUDA_MEMCPY3D d{};
    d.srcMemoryType = d.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    d.srcDevice = op.src.op.ptr.ptr;
    d.srcPitch = op.src.op.ptr.rowLength;
    d.srcHeight = op.src.op.ptr.layerHeight;
    d.dstDevice = op.dst.op.ptr.ptr;
    d.dstPitch = op.dst.op.ptr.rowLength;
    d.dstHeight = op.dst.op.ptr.layerHeight;
    d.WidthInBytes = op.extent.width;
    d.Height = op.extent.height;
    d.Depth = op.extent.depth;
    return d;
}

CUresult copy_boxes(std::size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags, CUstream stream) {
    require(count > 0 && list != nullptr && flags == 0);
    check_stream(stream);
    std::vector<CUDA_MEMCPY3D> copies;
    for (std::size_t i = 0; i < count; ++i) copies.push_back(described(list[i]));
    Batch batch(stream);
    for (std::size_t i = 0; i < count; ++i) {
        batch.before(copies[i].srcDevice, 1, list[i].srcAccessOrder);
        done(api::cuMemcpy3DAsync_v2(&copies[i], stream));
    }
    batch.finish();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                    CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count,
                                    CUstream stream) {
    return copy_lines(to, from, sizes, count, attributes, first, attribute_count, stream);
}
CUresult api::cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* first, size_t attribute_count, size_t* failed,
                                 CUstream stream) {
    if (failed) *failed = ~std::size_t{0};  // no single copy is to blame
    return copy_lines(to, from, sizes, count, attributes, first, attribute_count, stream);
}
CUresult api::cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, unsigned long long flags,
                                      CUstream stream) {
    return copy_boxes(count, list, flags, stream);
}
CUresult api::cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* list, size_t* failed, unsigned long long flags,
                                   CUstream stream) {
    if (failed) *failed = ~std::size_t{0};
    return copy_boxes(count, list, flags, stream);
}

// What the memory holds afterwards is undefined until it is written again, so that keeping it is as good as anything.
CUresult api::cuMemDiscardBatchAsync(CUdeviceptr* pointers, size_t* sizes, size_t count, unsigned long long flags,
                                     CUstream stream) {
    require(pointers && sizes && count > 0 && flags == 0);
    check_stream(stream);
    forbid_capturing(*stream_of(stream));
    for (std::size_t i = 0; i < count; ++i)
        require(sizes[i] > 0 && pointers[i] != 0 && place_of(pointers[i], sizes[i]) == Place::Managed);
    return CUDA_SUCCESS;
}
CUresult api::cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* pointers, size_t* sizes, size_t count,
                                                CUmemLocation* locations, size_t* first, size_t location_count,
                                                unsigned long long flags, CUstream stream) {
    const CUresult result = api::cuMemDiscardBatchAsync(pointers, sizes, count, flags, stream);
    if (result != CUDA_SUCCESS) return result;
    return api::cuMemPrefetchBatchAsync(pointers, sizes, count, locations, first, location_count, flags, stream);
}

}  // namespace hpe::soft
