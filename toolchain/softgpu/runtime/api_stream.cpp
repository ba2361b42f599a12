// SPDX-License-Identifier: MIT
// Streams, their capture into graphs, and events.
#include "api.h"

using namespace hpe::soft::cudart;

namespace {

CUstreamCaptureMode driver_mode(cudaStreamCaptureMode mode) { return static_cast<CUstreamCaptureMode>(mode); }

// These types are the driver's under another name; the pointers go through as they are.
const CUgraphEdgeData* driver_edges(const cudaGraphEdgeData* edges) {
    return reinterpret_cast<const CUgraphEdgeData*>(edges);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return with_context([&](const Driver& d) { return d.cuStreamCreate(stream, CU_STREAM_DEFAULT); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuStreamCreate(stream, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    return with_context([&](const Driver& d) { return d.cuStreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return with_context([&](const Driver& d) {
        // The driver would destroy nothing for the null stream; the runtime calls that a wrong handle.
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : d.cuStreamDestroy(stream);
    });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return with_context([&](const Driver& d) {
        return d.cuThreadExchangeStreamCaptureMode(reinterpret_cast<CUstreamCaptureMode*>(mode));
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return with_context([&](const Driver& d) { return d.cuEventCreate(event, CU_EVENT_DEFAULT); });
}

// In C++ a program may mean this one by cudaEventCreate(event, flags).
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    return with_context([&](const Driver& d) { return d.cuEventCreate(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuEventDestroy(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuEventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return with_context([&](const Driver& d) { return d.cuEventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    return with_context([&](const Driver& d) { return d.cuEventElapsedTime(milliseconds, from, to); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
    return with_context(
        [&](const Driver& d) { return d.cuIpcGetEventHandle(reinterpret_cast<CUipcEventHandle*>(handle), event); });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
    return with_context(
        [&](const Driver& d) { return d.cuIpcOpenEventHandle(event, reinterpret_cast<CUipcEventHandle&>(handle)); });
}
}

HPE_BOTH_FLAVOURS(cudaStreamSynchronize, ptsz, (cudaStream_t stream), (stream)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamSynchronize(stream); });
}

HPE_BOTH_FLAVOURS(cudaStreamQuery, ptsz, (cudaStream_t stream), (stream)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamQuery(stream); });
}

HPE_BOTH_FLAVOURS(cudaStreamWaitEvent, ptsz, (cudaStream_t stream, cudaEvent_t event, unsigned flags),
                  (stream, event, flags)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamWaitEvent(stream, event, flags); });
}

HPE_BOTH_FLAVOURS(cudaStreamAddCallback, ptsz,
                  (cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned flags),
                  (stream, callback, data, flags)) {
    return with_context(flavour, [&](const Driver& d) {
        // The same function but for the name of the type of its status.
        return d.cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(reinterpret_cast<void*>(callback)),
                                     data, flags);
    });
}

HPE_BOTH_FLAVOURS(cudaStreamAttachMemAsync, ptsz, (cudaStream_t stream, void* pointer, size_t length, unsigned flags),
                  (stream, pointer, length, flags)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamAttachMemAsync(stream, device_pointer(pointer), length, flags);
    });
}

HPE_BOTH_FLAVOURS(cudaStreamGetPriority, ptsz, (cudaStream_t stream, int* priority), (stream, priority)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamGetPriority(stream, priority); });
}

HPE_BOTH_FLAVOURS(cudaStreamGetFlags, ptsz, (cudaStream_t stream, unsigned* flags), (stream, flags)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamGetFlags(stream, flags); });
}

HPE_BOTH_FLAVOURS(cudaStreamGetId, ptsz, (cudaStream_t stream, unsigned long long* id), (stream, id)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamGetId(stream, id); });
}

HPE_BOTH_FLAVOURS(cudaStreamGetDevice, ptsz, (cudaStream_t stream, int* device), (stream, device)) {
    return with_context(flavour, [&](const Driver& d) {
        // Handles and ordinals of devices are the same numbers.
        return d.cuStreamGetDevice(stream, device);
    });
}

HPE_BOTH_FLAVOURS(cudaStreamCopyAttributes, ptsz, (cudaStream_t to, cudaStream_t from), (to, from)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamCopyAttributes(to, from); });
}

HPE_BOTH_FLAVOURS(cudaStreamGetAttribute, ptsz,
                  (cudaStream_t stream, cudaLaunchAttributeID attribute, cudaLaunchAttributeValue* value),
                  (stream, attribute, value)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                      reinterpret_cast<CUstreamAttrValue*>(value));
    });
}

HPE_BOTH_FLAVOURS(cudaStreamSetAttribute, ptsz,
                  (cudaStream_t stream, cudaLaunchAttributeID attribute, const cudaLaunchAttributeValue* value),
                  (stream, attribute, value)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(attribute),
                                      reinterpret_cast<const CUstreamAttrValue*>(value));
    });
}

HPE_BOTH_FLAVOURS(cudaStreamBeginCapture, ptsz, (cudaStream_t stream, cudaStreamCaptureMode mode), (stream, mode)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamBeginCapture(stream, driver_mode(mode)); });
}

HPE_BOTH_FLAVOURS(cudaStreamBeginCaptureToGraph, ptsz,
                  (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                   const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode),
                  (stream, graph, dependencies, edges, count, mode)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamBeginCaptureToGraph(stream, graph, dependencies, driver_edges(edges), count,
                                             driver_mode(mode));
    });
}

HPE_BOTH_FLAVOURS(cudaStreamEndCapture, ptsz, (cudaStream_t stream, cudaGraph_t* graph), (stream, graph)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuStreamEndCapture(stream, graph); });
}

HPE_BOTH_FLAVOURS(cudaStreamIsCapturing, ptsz, (cudaStream_t stream, cudaStreamCaptureStatus* status),
                  (stream, status)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamIsCapturing(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
    });
}

HPE_BOTH_FLAVOURS(cudaStreamGetCaptureInfo, ptsz,
                  (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
                   const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges, size_t* count),
                  (stream, status, id, graph, dependencies, edges, count)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                        reinterpret_cast<cuuint64_t*>(id), graph, dependencies,
                                        reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    });
}

HPE_BOTH_FLAVOURS(cudaStreamUpdateCaptureDependencies, ptsz,
                  (cudaStream_t stream, cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges, size_t count,
                   unsigned flags),
                  (stream, dependencies, edges, count, flags)) {
    return with_context(flavour, [&](const Driver& d) {
        return d.cuStreamUpdateCaptureDependencies(stream, dependencies, driver_edges(edges), count, flags);
    });
}

HPE_BOTH_FLAVOURS(cudaEventRecord, ptsz, (cudaEvent_t event, cudaStream_t stream), (event, stream)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuEventRecord(event, stream); });
}

HPE_BOTH_FLAVOURS(cudaEventRecordWithFlags, ptsz, (cudaEvent_t event, cudaStream_t stream, unsigned flags),
                  (event, stream, flags)) {
    return with_context(flavour, [&](const Driver& d) { return d.cuEventRecordWithFlags(event, stream, flags); });
}
