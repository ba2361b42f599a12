// SPDX-License-Identifier: MIT
// The life of captures, and what they forbid.
#include "toolchain/softgpu/driver/stream/capture.h"

#include <algorithm>
#include <atomic>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

unsigned long long last_capture_id = 0;  // guarded by the order lock
// All that have begun and not ended. Guarded by the order lock; their number is read without it.
std::vector<std::shared_ptr<Capture>>& captures() {
    static auto* all = new std::vector<std::shared_ptr<Capture>>;
    return *all;
}
std::atomic<unsigned> capture_count{0};

// Invalidates the captures of blocking streams of a context, for which its legacy stream would have to wait.
bool invalidate_blocking(const Context& context) {
    bool any = false;
    for (const auto& capture : captures())
        for (const Stream* stream : capture->streams)
            if (&stream->context == &context && stream->blocking()) {
                capture->invalid = true;
                any = true;
            }
    return any;
}

void release_streams(Capture& capture) {
    for (Stream* stream : capture.streams) {
        stream->capture.reset();
        stream->capture_tail.clear();
    }
    capture.streams.clear();
}

}  // namespace

void invalidate(Capture& capture) { capture.invalid = true; }

void begin_capture(const std::shared_ptr<Capture>& capture, Stream& stream, std::vector<GraphNode*> behind) {
    capture->id = ++last_capture_id;
    capture->origin = &stream;
    capture->streams = {&stream};
    stream.capture_tail = std::move(behind);
    stream.capture = capture;
    captures().push_back(capture);
    capture_count = static_cast<unsigned>(captures().size());
}

// Events may keep the record of a capture, but not its graph.
void end_capture(const std::shared_ptr<Capture>& capture, bool keep) {
    release_streams(*capture);
    capture->ended = true;
    capture->origin = nullptr;
    capture->finish(keep);
    std::erase(captures(), capture);
    capture_count = static_cast<unsigned>(captures().size());
}

std::shared_ptr<Capture> capture_for_work(Stream& stream) {
    if (capture_count == 0) return nullptr;
    if (!stream.capture) {
        if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
            fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return nullptr;
    }
    require(!stream.capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return stream.capture;
}

void join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, const std::vector<GraphNode*>& behind) {
    if (capture->ended) {
        if (stream.capture) invalidate(*stream.capture);
        fail(CUDA_ERROR_INVALID_VALUE);
    }
    require(!capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (stream.kind == Stream::Kind::Legacy) {
        invalidate(*capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    }
    if (stream.capture && stream.capture != capture) {
        invalidate(*capture);
        invalidate(*stream.capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream.capture) {
        stream.capture = capture;
        stream.capture_tail.clear();
        capture->streams.push_back(&stream);
    }
    add_to_tail(stream, behind);
}

void add_to_tail(Stream& stream, const std::vector<GraphNode*>& nodes) {
    for (GraphNode* node : nodes)
        if (std::find(stream.capture_tail.begin(), stream.capture_tail.end(), node) == stream.capture_tail.end())
            stream.capture_tail.push_back(node);
}

CUstreamCaptureStatus capture_status(const Stream& stream) {
    if (!stream.capture) {
        if (stream.kind == Stream::Kind::Legacy)
            for (const auto& capture : captures())
                for (const Stream* other : capture->streams)
                    if (&other->context == &stream.context && other->blocking())
                        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return CU_STREAM_CAPTURE_STATUS_NONE;
    }
    return stream.capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

bool is_capturing(Stream& stream) {
    if (capture_count == 0) return false;
    const std::lock_guard lock(driver().order);
    return stream.capture != nullptr;
}

void invalidate_capture_of(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.capture) invalidate(*stream.capture);
}

void leave_capture(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    const auto capture = stream.capture;
    if (!capture) return;
    if (capture->origin == &stream) {
        invalidate(*capture);
        // Nobody can end it any more.
        end_capture(capture, false);
        return;
    }
    // Its part stays; whether it was joined is asked at the end.
    std::erase(capture->streams, &stream);
    capture->loose.insert(capture->loose.end(), stream.capture_tail.begin(), stream.capture_tail.end());
    stream.capture.reset();
    stream.capture_tail.clear();
}

void forbid_implicit_sync(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void forbid_capturing(Stream& stream) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    if (stream.capture) {
        invalidate(*stream.capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (stream.kind == Stream::Kind::Legacy && invalidate_blocking(stream.context))
        fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void forbid_while_capturing(const Context& context) {
    if (capture_count == 0) return;
    const std::lock_guard lock(driver().order);
    bool any = false;
    for (const auto& capture : captures())
        for (const Stream* stream : capture->streams)
            if (&stream->context == &context) {
                invalidate(*capture);
                any = true;
            }
    require(!any, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void forbid_unsafe_call() {
    if (capture_count == 0) return;
    const ThreadState& thread = thread_state();
    if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
    const std::lock_guard lock(driver().order);
    bool any = false;
    for (const auto& capture : captures()) {
        const bool forbids = capture->thread == &thread ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                                        : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                                              thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!forbids) continue;
        invalidate(*capture);
        any = true;
    }
    require(!any, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

}  // namespace hpe::soft
