// SPDX-License-Identifier: MIT
// Every form of copy to, from and between CUDA arrays, against the same copy between plain vectors of the host.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

namespace {

using Bytes = std::vector<unsigned char>;

std::mt19937 random_numbers(7);
std::size_t below(std::size_t n) { return n == 0 ? 0 : random_numbers() % n; }

Bytes noise(std::size_t n) {
    Bytes bytes(n);
    for (auto& b : bytes) b = static_cast<unsigned char>(random_numbers());
    return bytes;
}

// An array and what is in it.
struct Model {
    cudaArray_t array = nullptr;
    std::size_t element, width, height, depth, row, rows, planes;
    Bytes bytes;

    Model(cudaChannelFormatDesc format, std::size_t w, std::size_t h, std::size_t d, unsigned flags = 0)
        : element((format.x + format.y + format.z + format.w) / 8), width(w), height(h), depth(d), row(w * element),
          rows(std::max<std::size_t>(h, 1)), planes(std::max<std::size_t>(d, 1)) {
        CUDA(cudaMalloc3DArray(&array, &format, cudaExtent{w, h, d}, flags));
        bytes = noise(row * rows * planes);
        cudaMemcpy3DParms p{};
        p.srcPtr = cudaPitchedPtr{bytes.data(), row, row, rows};
        p.dstArray = array;
        p.extent = cudaExtent{width, rows, planes};
        p.kind = cudaMemcpyHostToDevice;
        CUDA(cudaMemcpy3D(&p));
        check();
    }
    ~Model() { CUDA(cudaFreeArray(array)); }
    Model(const Model&) = delete;

    void check() const {
        Bytes got(bytes.size());
        cudaMemcpy3DParms p{};
        p.srcArray = array;
        p.dstPtr = cudaPitchedPtr{got.data(), row, row, rows};
        p.extent = cudaExtent{width, rows, planes};
        p.kind = cudaMemcpyDeviceToHost;
        CUDA(cudaMemcpy3D(&p));
        EXPECT(got == bytes);
    }
    unsigned char* at(std::size_t x, std::size_t y, std::size_t z) {
        return bytes.data() + (z * rows + y) * row + x * element;
    }
};

struct Box {
    std::size_t x, y, z, width, height, depth;  // in elements
};
Box box_in(const Model& m) {
    Box b{below(m.width), below(m.rows), below(m.planes), 0, 0, 0};
    b.width = 1 + below(m.width - b.x), b.height = 1 + below(m.rows - b.y), b.depth = 1 + below(m.planes - b.z);
    return b;
}

enum class Where { Pageable, Pinned, Device, Managed };
constexpr Where everywhere[] = {Where::Pageable, Where::Pinned, Where::Device, Where::Managed};

// Memory of one kind; put and get go by ordinary copies.
struct Memory {
    void* p = nullptr;
    std::size_t n;
    Where where;
    Memory(Where w, std::size_t bytes) : n(bytes), where(w) {
        if (w == Where::Pageable) p = std::malloc(n);
        if (w == Where::Pinned) CUDA(cudaMallocHost(&p, n));
        if (w == Where::Device) CUDA(cudaMalloc(&p, n));
        if (w == Where::Managed) CUDA(cudaMallocManaged(&p, n));
    }
    ~Memory() {
        if (where == Where::Pageable) std::free(p);
        if (where == Where::Pinned) cudaFreeHost(p);
        if (where == Where::Device || where == Where::Managed) cudaFree(p);
    }
    void put(const Bytes& b) { CUDA(cudaMemcpy(p, b.data(), n, cudaMemcpyDefault)); }
    Bytes get() const {
        Bytes b(n);
        CUDA(cudaMemcpy(b.data(), p, n, cudaMemcpyDefault));
        return b;
    }
    bool host() const { return where == Where::Pageable || where == Where::Pinned; }
    cudaMemcpyKind to_array() const { return host() ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice; }
    cudaMemcpyKind from_array() const { return host() ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice; }
};

void copy_box(unsigned char* to, std::size_t to_pitch, std::size_t to_slice, const unsigned char* from,
              std::size_t from_pitch, std::size_t from_slice, std::size_t width, std::size_t height,
              std::size_t depth) {
    for (std::size_t z = 0; z < depth; z++)
        for (std::size_t y = 0; y < height; y++)
            std::memcpy(to + z * to_slice + y * to_pitch, from + z * from_slice + y * from_pitch, width);
}

enum class Way { Now, Async, Captured, Node, Peer, PeerAsync };
constexpr Way ways[] = {Way::Now, Way::Async, Way::Captured, Way::Node, Way::Peer, Way::PeerAsync};

void run_graph(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t exec;
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
}

// What a node tells of itself is what it was made with.
void check_node(cudaGraph_t graph, const cudaMemcpy3DParms& p) {
    cudaGraphNode_t node;
    std::size_t count = 1;
    CUDA(cudaGraphGetNodes(graph, &node, &count));
    EXPECT(count == 1);
    cudaMemcpy3DParms told;
    CUDA(cudaGraphMemcpyNodeGetParams(node, &told));
    EXPECT(told.srcArray == p.srcArray && told.dstArray == p.dstArray);
    if (p.srcArray) EXPECT(told.srcPos.x == p.srcPos.x && told.srcPos.y == p.srcPos.y && told.srcPos.z == p.srcPos.z);
    if (p.dstArray) EXPECT(told.dstPos.x == p.dstPos.x && told.dstPos.y == p.dstPos.y && told.dstPos.z == p.dstPos.z);
    EXPECT(told.extent.width == p.extent.width && told.extent.height == p.extent.height &&
           told.extent.depth == p.extent.depth);
}

void copy_3d(const cudaMemcpy3DParms& p, Way way, cudaStream_t stream) {
    switch (way) {
        case Way::Now: CUDA(cudaMemcpy3D(&p)); break;
        case Way::Async:
            CUDA(cudaMemcpy3DAsync(&p, stream));
            CUDA(cudaStreamSynchronize(stream));
            break;
        case Way::Captured: {
            cudaGraph_t graph;
            CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
            CUDA(cudaMemcpy3DAsync(&p, stream));
            CUDA(cudaStreamEndCapture(stream, &graph));
            check_node(graph, p);
            run_graph(graph, stream);
            break;
        }
        case Way::Node: {
            cudaGraph_t graph;
            cudaGraphNode_t node;
            CUDA(cudaGraphCreate(&graph, 0));
            CUDA(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &p));
            check_node(graph, p);
            run_graph(graph, stream);
            break;
        }
        case Way::Peer:
        case Way::PeerAsync: {
            cudaMemcpy3DPeerParms q{};
            q.srcArray = p.srcArray, q.srcPos = p.srcPos, q.srcPtr = p.srcPtr;
            q.dstArray = p.dstArray, q.dstPos = p.dstPos, q.dstPtr = p.dstPtr;
            q.extent = p.extent;
            if (way == Way::Peer) {
                CUDA(cudaMemcpy3DPeer(&q));
            } else {
                CUDA(cudaMemcpy3DPeerAsync(&q, stream));
            }
            CUDA(cudaStreamSynchronize(stream));
            CUDA(cudaDeviceSynchronize());
            break;
        }
    }
}

// Boxes between memory and an array, by every way that has three dimensions.
void with_memory(Model& m, cudaStream_t stream) {
    for (const Where where : everywhere)
        for (const Way way : ways) {
            const Box b = box_in(m);
            const std::size_t pitch = b.width * m.element + below(40), high = b.height + below(3);
            Memory memory(where, pitch * high * b.depth);
            // The peer form says of no memory that it is the host's.
            if ((way == Way::Peer || way == Way::PeerAsync) && memory.host()) continue;
            Bytes model = noise(memory.n);
            memory.put(model);
            cudaMemcpy3DParms p{};
            p.extent = cudaExtent{b.width, b.height, b.depth};
            p.srcPtr = cudaPitchedPtr{memory.p, pitch, b.width, high};
            p.dstArray = m.array;
            p.dstPos = cudaPos{b.x, b.y, b.z};
            p.kind = way == Way::Async ? cudaMemcpyDefault : memory.to_array();
            copy_3d(p, way, stream);
            // Where lines lie in layers and memory is the device's, a slice is one row (seen on an H200).
            const std::size_t slice = m.height == 0 && m.depth != 0 && !memory.host() ? pitch : pitch * high;
            copy_box(m.at(b.x, b.y, b.z), m.row, m.row * m.rows, model.data(), pitch, slice, b.width * m.element,
                     b.height, b.depth);
            m.check();

            model = noise(memory.n);
            memory.put(model);
            cudaMemcpy3DParms back{};
            back.extent = p.extent;
            back.srcArray = m.array;
            back.srcPos = p.dstPos;
            back.dstPtr = p.srcPtr;
            back.kind = way == Way::Async ? cudaMemcpyDefault : memory.from_array();
            copy_3d(back, way, stream);
            copy_box(model.data(), pitch, slice, m.at(b.x, b.y, b.z), m.row, m.row * m.rows, b.width * m.element,
                     b.height, b.depth);
            EXPECT(memory.get() == model);
        }
}

void between(Model& to, Model& from, cudaStream_t stream) {
    for (const Way way : ways) {
        Box a = box_in(to), b = box_in(from);
        a.width = std::min(a.width, b.width), a.height = std::min(a.height, b.height);
        a.depth = std::min(a.depth, b.depth);
        cudaMemcpy3DParms p{};
        p.extent = cudaExtent{a.width, a.height, a.depth};
        p.srcArray = from.array, p.srcPos = cudaPos{b.x, b.y, b.z};
        p.dstArray = to.array, p.dstPos = cudaPos{a.x, a.y, a.z};
        p.kind = cudaMemcpyDeviceToDevice;
        copy_3d(p, way, stream);
        copy_box(to.at(a.x, a.y, a.z), to.row, to.row * to.rows, from.at(b.x, b.y, b.z), from.row,
                 from.row * from.rows, a.width * to.element, a.height, a.depth);
        to.check();
    }
}

// The forms for rows, and the older ones for bytes.
void rows(Model& m, Model& other, cudaStream_t stream) {
    for (const Where where : everywhere)
        for (int async = 0; async < 2; async++) {
            const Box b = box_in(m);
            const std::size_t width = b.width * m.element, pitch = width + below(40);
            Memory memory(where, pitch * b.height);
            Bytes model = noise(memory.n);
            memory.put(model);
            const auto to = memory.to_array(), from = memory.from_array();
            if (async)
                CUDA(cudaMemcpy2DToArrayAsync(m.array, b.x * m.element, b.y, memory.p, pitch, width, b.height, to,
                                              stream));
            else
                CUDA(cudaMemcpy2DToArray(m.array, b.x * m.element, b.y, memory.p, pitch, width, b.height, to));
            CUDA(cudaStreamSynchronize(stream));
            copy_box(m.at(b.x, b.y, 0), m.row, 0, model.data(), pitch, 0, width, b.height, 1);
            m.check();
            const Box c = box_in(m);
            Memory result(where, c.width * m.element * c.height);
            if (async)
                CUDA(cudaMemcpy2DFromArrayAsync(result.p, c.width * m.element, m.array, c.x * m.element, c.y,
                                                c.width * m.element, c.height, from, stream));
            else
                CUDA(cudaMemcpy2DFromArray(result.p, c.width * m.element, m.array, c.x * m.element, c.y,
                                           c.width * m.element, c.height, from));
            CUDA(cudaStreamSynchronize(stream));
            model.assign(result.n, 0);
            copy_box(model.data(), c.width * m.element, 0, m.at(c.x, c.y, 0), m.row, 0, c.width * m.element, c.height,
                     1);
            EXPECT(result.get() == model);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
            const std::size_t first = (b.y * m.width + b.x) * m.element;
            const std::size_t count = (1 + below(m.bytes.size() / m.element - first / m.element)) * m.element;
            Memory run(where, count);
            model = noise(count);
            run.put(model);
            if (async)
                CUDA(cudaMemcpyToArrayAsync(m.array, b.x * m.element, b.y, run.p, count, to, stream));
            else
                CUDA(cudaMemcpyToArray(m.array, b.x * m.element, b.y, run.p, count, to));
            CUDA(cudaStreamSynchronize(stream));
            std::copy(model.begin(), model.end(), m.bytes.begin() + first);
            m.check();
            run.put(noise(count));
            if (async)
                CUDA(cudaMemcpyFromArrayAsync(run.p, m.array, b.x * m.element, b.y, count, from, stream));
            else
                CUDA(cudaMemcpyFromArray(run.p, m.array, b.x * m.element, b.y, count, from));
            CUDA(cudaStreamSynchronize(stream));
            EXPECT(run.get() == model);
        }
    Box a = box_in(m), b = box_in(other);
    a.width = std::min(a.width, b.width), a.height = std::min(a.height, b.height);
    CUDA(cudaMemcpy2DArrayToArray(m.array, a.x * m.element, a.y, other.array, b.x * m.element, b.y,
                                  a.width * m.element, a.height, cudaMemcpyDeviceToDevice));
    copy_box(m.at(a.x, a.y, 0), m.row, 0, other.at(b.x, b.y, 0), other.row, 0, a.width * m.element, a.height, 1);
    m.check();
    const std::size_t to = (a.y * m.width + a.x) * m.element, from = (b.y * other.width + b.x) * m.element;
    const std::size_t count = std::min(m.bytes.size() - to, other.bytes.size() - from);
    CUDA(cudaMemcpyArrayToArray(m.array, a.x * m.element, a.y, other.array, b.x * m.element, b.y, count));
    std::copy_n(other.bytes.begin() + from, count, m.bytes.begin() + to);
    m.check();
    EXPECT(cudaMemcpyToArray(m.array, 0, 0, m.bytes.data(), m.bytes.size() + 1, cudaMemcpyHostToDevice) ==
           cudaErrorInvalidValue);
#pragma GCC diagnostic pop
}

#define DRIVER(call) EXPECT((call) == CUDA_SUCCESS)

// The driver's forms for arrays of one dimension.
void lines() {
    CUarray a, b;
    CUDA_ARRAY_DESCRIPTOR d{300, 0, CU_AD_FORMAT_UNSIGNED_INT16, 1};
    DRIVER(cuArrayCreate(&a, &d));
    DRIVER(cuArrayCreate(&b, &d));
    Bytes model = noise(600), got(600), zero(600);
    DRIVER(cuMemcpyHtoA(a, 0, model.data(), 600));
    DRIVER(cuMemcpyAtoH(got.data(), a, 0, 600));
    EXPECT(got == model);
    Bytes part = noise(100);
    DRIVER(cuMemcpyHtoA(a, 200, part.data(), 100));
    std::copy(part.begin(), part.end(), model.begin() + 200);
    CUdeviceptr p;
    DRIVER(cuMemAlloc(&p, 600));
    DRIVER(cuMemcpyHtoD(p, zero.data(), 600));
    DRIVER(cuMemcpyAtoD(p, a, 100, 500));
    DRIVER(cuMemcpyDtoH(got.data(), p, 500));
    EXPECT(std::equal(model.begin() + 100, model.end(), got.begin()));
    DRIVER(cuMemcpyDtoA(b, 0, p, 500));
    DRIVER(cuMemcpyAtoA(b, 500, a, 0, 100));
    DRIVER(cuCtxSynchronize());  // copies within a device are asynchronous
    CUstream stream;
    DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER(cuMemcpyAtoHAsync(got.data(), b, 0, 600, stream));
    DRIVER(cuStreamSynchronize(stream));
    EXPECT(std::equal(got.begin(), got.begin() + 500, model.begin() + 100));
    EXPECT(std::equal(got.begin() + 500, got.end(), model.begin()));
    DRIVER(cuMemcpyHtoAAsync(b, 2, model.data(), 598, stream));
    DRIVER(cuMemcpyAtoHAsync(got.data(), b, 0, 600, stream));
    DRIVER(cuStreamSynchronize(stream));
    EXPECT(std::equal(got.begin() + 2, got.end(), model.begin()));
    // Far beyond the end: a row may be longer than its elements.
    Bytes much(16 << 20);
    EXPECT(cuMemcpyHtoA(a, 500, much.data(), much.size()) == CUDA_ERROR_INVALID_VALUE);
    // In parts of elements, and between elements of different sizes: bytes.
    DRIVER(cuMemcpyHtoA(a, 0, zero.data(), 600));
    DRIVER(cuMemcpyHtoA(b, 0, model.data(), 600));
    DRIVER(cuMemcpyAtoA(a, 0, b, 1, 10));
    CUarray c;
    d.Format = CU_AD_FORMAT_FLOAT;
    DRIVER(cuArrayCreate(&c, &d));
    DRIVER(cuMemcpyHtoA(c, 0, part.data(), 100));
    DRIVER(cuMemcpyAtoA(a, 20, c, 0, 4));
    DRIVER(cuCtxSynchronize());
    DRIVER(cuMemcpyAtoH(got.data(), a, 0, 600));
    EXPECT(std::equal(model.begin() + 1, model.begin() + 11, got.begin()));
    EXPECT(std::equal(part.begin(), part.begin() + 4, got.begin() + 20));
    EXPECT(std::equal(zero.begin() + 24, zero.end(), got.begin() + 24) && got[10] == 0 && got[19] == 0);
    CUDA_ARRAY_DESCRIPTOR told;
    DRIVER(cuArrayGetDescriptor(&told, c));
    EXPECT(told.Width == 300 && told.Height == 0 && told.Format == CU_AD_FORMAT_FLOAT && told.NumChannels == 1);
    for (const CUarray array : {a, b, c}) DRIVER(cuArrayDestroy(array));
    DRIVER(cuMemFree(p));
    DRIVER(cuStreamDestroy(stream));
}

cudaError_t make(cudaChannelFormatDesc format, std::size_t w, std::size_t h, std::size_t d, unsigned flags) {
    cudaArray_t array = nullptr;
    const cudaError_t e = cudaMalloc3DArray(&array, &format, cudaExtent{w, h, d}, flags);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return e;
    }
    cudaChannelFormatDesc told;
    cudaExtent extent;
    unsigned told_flags;
    CUDA(cudaArrayGetInfo(&told, &extent, &told_flags, array));
    EXPECT(std::memcmp(&told, &format, sizeof told) == 0 && told_flags == flags);
    EXPECT(extent.width == w && extent.height == h && extent.depth == d);
    CUDA(cudaGetChannelDesc(&told, array));
    EXPECT(std::memcmp(&told, &format, sizeof told) == 0);
    CUDA(cudaFreeArray(array));
    return e;
}

// Which arrays there are.
void kinds() {
    const auto f = cudaCreateChannelDesc<float>();
    constexpr auto bad = cudaErrorInvalidValue;
    constexpr unsigned layered = cudaArrayLayered, cube = cudaArrayCubemap, surface = cudaArraySurfaceLoadStore,
                       gather = cudaArrayTextureGather;
    EXPECT(make(f, 5, 0, 0, 0) == cudaSuccess && make(f, 5, 6, 0, 0) == cudaSuccess);
    EXPECT(make(f, 5, 6, 7, 0) == cudaSuccess && make(f, 5, 0, 7, layered) == cudaSuccess);
    EXPECT(make(f, 5, 6, 7, layered) == cudaSuccess && make(f, 8, 8, 6, cube) == cudaSuccess);
    EXPECT(make(f, 8, 8, 12, cube | layered) == cudaSuccess && make(f, 5, 6, 0, surface) == cudaSuccess);
    EXPECT(make(f, 5, 6, 0, gather) == cudaSuccess);
    EXPECT(make(f, 0, 6, 0, 0) == bad && make(f, 5, 0, 7, 0) == bad && make(f, 5, 6, 0, layered) == bad);
    EXPECT(make(f, 8, 7, 6, cube) == bad && make(f, 8, 8, 5, cube) == bad && make(f, 8, 8, 8, cube | layered) == bad);
    EXPECT(make(f, 5, 0, 0, gather) == bad && make(f, 5, 6, 7, gather) == bad && make(f, 5, 0, 0, 0x1000) == bad);
    cudaDeviceProp limits;
    CUDA(cudaGetDeviceProperties(&limits, 0));
    EXPECT(make(f, limits.maxTexture1D, 0, 0, 0) == cudaSuccess && make(f, limits.maxTexture1D + 1, 0, 0, 0) == bad);
    EXPECT(make(f, 1, limits.maxTexture2D[1], 0, 0) == cudaSuccess);
    EXPECT(make(f, 1, limits.maxTexture2D[1] + 1, 0, 0) == bad);
    EXPECT(make(f, 1, 1, limits.maxTexture3D[2] + 1, 0) == cudaSuccess);  // the alternate limits: flat and deep
    EXPECT(make(f, limits.maxTexture3D[0], 1, limits.maxTexture3D[2] + 1, 0) == bad);
    EXPECT(make(f, 1, 1, limits.maxTexture2DLayered[2] + 1, layered) == bad);
    EXPECT(make(f, limits.maxSurface1D + 1, 0, 0, surface) == bad);
    // Channels: one, two or four of the same size.
    EXPECT(make(cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned), 5, 0, 0, 0) != cudaSuccess);
    EXPECT(make(cudaCreateChannelDesc(8, 16, 0, 0, cudaChannelFormatKindUnsigned), 5, 0, 0, 0) != cudaSuccess);
    EXPECT(make(cudaCreateChannelDesc(64, 0, 0, 0, cudaChannelFormatKindUnsigned), 5, 0, 0, 0) != cudaSuccess);
    // Its memory is the device's.
    std::size_t before, during, after, total;
    cudaArray_t array;
    CUDA(cudaMemGetInfo(&before, &total));
    CUDA(cudaMallocArray(&array, &f, 4096, 2048));
    CUDA(cudaMemGetInfo(&during, &total));
    CUDA(cudaFreeArray(array));
    CUDA(cudaMemGetInfo(&after, &total));
    EXPECT(before - during >= (32u << 20) && after == before);
    EXPECT(make(f, 16384, 16384, 0, 0) == cudaSuccess || total < (std::size_t{1} << 30));
    EXPECT(make(f, 16384, 16384, 2048, layered) == cudaErrorMemoryAllocation);
    CUDA(cudaFreeArray(nullptr));
}

// Boxes that reach beyond an array, and arrays of elements of different sizes.
void outside(Model& m, Model& wider) {
    Bytes bytes(1 << 16);
    const auto refused = [&](cudaPos at, cudaExtent extent) {
        cudaMemcpy3DParms p{};
        p.srcPtr = cudaPitchedPtr{bytes.data(), extent.width * m.element, extent.width, extent.height};
        p.dstArray = m.array;
        p.dstPos = at;
        p.extent = extent;
        p.kind = cudaMemcpyHostToDevice;
        EXPECT(cudaMemcpy3D(&p) == cudaErrorInvalidValue && cudaGetLastError() == cudaErrorInvalidValue);
    };
    refused({1, 0, 0}, {m.width, 1, 1});
    refused({0, 1, 0}, {1, m.rows, 1});
    refused({0, 0, 1}, {1, 1, m.planes});
    refused({~std::size_t{0} / 16, 0, 0}, {2, 1, 1});
    cudaMemcpy3DParms p{};
    p.srcArray = wider.array, p.dstArray = m.array;
    p.extent = cudaExtent{1, 1, 1};
    p.kind = cudaMemcpyDeviceToDevice;
    FAILS(cudaErrorInvalidValue, cudaMemcpy3D(&p));
    // Copies of rows count bytes, and may begin and end within an element.
    const unsigned char few[] = {201, 202, 203};
    CUDA(cudaMemcpy2DToArray(m.array, 1, 0, few, 3, 3, 1, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidPitchValue, cudaMemcpy2DToArray(m.array, 0, 0, few, 2, 3, 2, cudaMemcpyHostToDevice));
    FAILS(cudaErrorInvalidValue, cudaGetChannelDesc(nullptr, m.array));
    std::memcpy(m.bytes.data() + 1, few, 3);
    unsigned char back[2] = {};
    CUDA(cudaMemcpy2DFromArray(back, 2, m.array, 2, 0, 2, 1, cudaMemcpyDeviceToHost));
    EXPECT(back[0] == 202 && back[1] == 203);
    // A pitch below the width, even of one row.
    p = {};
    p.srcPtr = cudaPitchedPtr{bytes.data(), m.element - 1, 1, 1}, p.dstArray = m.array;
    p.extent = cudaExtent{1, 1, 1};
    p.kind = cudaMemcpyHostToDevice;
    EXPECT(cudaMemcpy3D(&p) == cudaErrorInvalidValue);
    cudaGetLastError();
    m.check();
}

}  // namespace

int main() {
    kinds();
    lines();
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        Model one(cudaCreateChannelDesc<unsigned char>(), 301, 0, 0), more(cudaCreateChannelDesc<char>(), 200, 0, 0);
        Model layers(cudaCreateChannelDesc<short2>(), 33, 0, 5, 1);
        Model flat(cudaCreateChannelDesc<float>(), 57, 31, 0), other(cudaCreateChannelDesc<int>(), 40, 50, 0);
        Model solid(cudaCreateChannelDesc<uchar4>(), 13, 9, 7), pages(cudaCreateChannelDesc<int>(), 13, 9, 7, 1);
        Model cube(cudaCreateChannelDesc<float4>(), 6, 6, 6, 4), thick(cudaCreateChannelDesc<int4>(), 9, 20, 8);
        for (int round = 0; round < 4; round++) {
            for (Model* m : {&one, &layers, &flat, &solid, &pages, &cube}) with_memory(*m, stream);
            between(flat, other, stream);
            between(solid, pages, stream);
            between(solid, other, stream);
            between(cube, thick, stream);
            rows(flat, other, stream);
            rows(one, more, stream);
        }
        outside(solid, thick);
    }
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaDeviceSynchronize());
    std::printf("arrays: ok\n");
}
