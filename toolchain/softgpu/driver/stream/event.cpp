// SPDX-License-Identifier: MIT
// Events and their driver functions.
#include "toolchain/softgpu/driver/stream/event.h"

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/stream/capture.h"
#include "toolchain/softgpu/driver/stream/shared_event.h"
#include "toolchain/softgpu/driver/stream/stream.h"

namespace hpe::soft {

std::shared_ptr<Event> event_of(CUevent handle) {
    auto event = driver().events.find(handle);
    require(event != nullptr && event->context_id == event->context.id(), CUDA_ERROR_INVALID_HANDLE);
    event->context.check();
    return event;
}

CUresult api::cuEventCreate(CUevent* phEvent, unsigned flags) {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    Context& context = current();
    require(phEvent != nullptr && (flags & ~known) == 0);
    require(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING));
    auto event = std::make_shared<Event>(context, flags);
    if (flags & CU_EVENT_INTERPROCESS) event->shared = SharedEvent::make(-1);
    *phEvent = event->handle();
    driver().events.add(std::move(event));
    return CUDA_SUCCESS;
}

CUresult api::cuEventDestroy_v2(CUevent handle) {
    const auto event = driver().events.remove(handle);
    require(event != nullptr, CUDA_ERROR_INVALID_HANDLE);
    event->context.check();  // it is gone all the same
    return CUDA_SUCCESS;
}
CUresult api::cuEventDestroy(CUevent handle) { return api::cuEventDestroy_v2(handle); }

CUresult api::cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags) {
    require((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) == 0);
    const auto event = event_of(handle);
    const auto stream = stream_of(stream_handle);
    require(&event->context == &stream->context, CUDA_ERROR_INVALID_HANDLE);
    wait_for_room(*stream);
    const std::lock_guard lock(driver().order);
    if (const auto capture = capture_for_work(*stream)) {
        if (event->shared) fail(not_supported("cuEventRecord of an interprocess event in a stream capture"));
        if (flags & CU_EVENT_RECORD_EXTERNAL) {
            capture->add_record(*stream, event);
        } else {
            event->capture = capture;
            event->captured_at = stream->capture_tail;
            event->mark.reset();
        }
        return CUDA_SUCCESS;
    }
    require(!(flags & CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
    event->capture.reset();
    event->captured_at.clear();
    if (const auto shared = event->shared) {
        const std::uint64_t number = ++shared->mark().recorded;
        event->mark = append(*stream, [shared, number] { shared->mark().reach(number); });
    } else {
        event->mark = append(*stream, {});
    }
    return CUDA_SUCCESS;
}
CUresult api::cuEventRecord(CUevent event, CUstream stream) { return api::cuEventRecordWithFlags(event, stream, 0); }

CUresult api::cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
    require((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) == 0);
    const auto stream = stream_of(stream_handle);
    const auto event = event_of(handle);
    wait_for_room(*stream);
    const std::lock_guard lock(driver().order);
    const auto capture = capture_for_work(*stream);
    if (flags & CU_EVENT_WAIT_EXTERNAL) {
        require(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
        capture->add_wait(*stream, event);
        return CUDA_SUCCESS;
    }
    if (event->capture) {
        join_capture(*stream, event->capture, event->captured_at);
        return CUDA_SUCCESS;
    }
    if (const auto shared = event->shared) {
        if (capture) fail(not_supported("cuStreamWaitEvent for an interprocess event in a stream capture"));
        // Another process may have recorded it last.
        const std::uint64_t number = shared->mark().recorded;
        if (shared->mark().reached(number)) return CUDA_SUCCESS;
        append(*stream, [shared, number, context = &stream->context] { shared->mark().wait(number, *context); });
        return CUDA_SUCCESS;
    }
    if (!event->mark) return CUDA_SUCCESS;  // never recorded: nothing to wait for
    if (capture) {
        invalidate(*capture);
        fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    append(*stream, {}, std::span(&event->mark, 1));
    return CUDA_SUCCESS;
}

namespace {

enum class Harm { None, Invalidates };

TaskRef mark_of(Event& event, Harm harm) {
    const std::lock_guard lock(driver().order);
    if (event.capture) {
        require(!event.capture->ended);
        if (harm == Harm::Invalidates) invalidate(*event.capture);
        fail(CUDA_ERROR_CAPTURED_EVENT);
    }
    return event.mark;
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
    require(milliseconds != nullptr);
    const auto start = event_of(start_handle), end = event_of(end_handle);
    require(start->timed() && end->timed() && &start->context == &end->context, CUDA_ERROR_INVALID_HANDLE);
    const TaskRef from = mark_of(*start, Harm::None), to = mark_of(*end, Harm::None);
    require(from && to, CUDA_ERROR_INVALID_HANDLE);
    if (!from->done() || !to->done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(to->finished() - from->finished()).count();
    return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuEventQuery(CUevent handle) {
    const auto event = event_of(handle);
    const TaskRef mark = mark_of(*event, Harm::Invalidates);
    forbid_unsafe_call();
    if (event->shared && !event->shared->mark().reached(event->shared->mark().recorded)) return CUDA_ERROR_NOT_READY;
    if (mark && !mark->done()) return CUDA_ERROR_NOT_READY;
    event->context.check();
    return CUDA_SUCCESS;
}

CUresult api::cuEventSynchronize(CUevent handle) {
    const auto event = event_of(handle);
    const TaskRef mark = mark_of(*event, Harm::Invalidates);
    forbid_unsafe_call();
    if (event->shared) event->shared->mark().wait(event->shared->mark().recorded, event->context);
    driver().engine.wait(mark);
    event->context.check();
    return CUDA_SUCCESS;
}

CUresult api::cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(milliseconds, start, end);
}
CUresult api::cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
    return elapsed(milliseconds, start, end);
}

}  // namespace hpe::soft
