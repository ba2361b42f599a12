// SPDX-License-Identifier: MIT
// What waits for what, among the streams of a context.
#include "toolchain/softgpu/driver/stream/stream.h"

#include <atomic>

#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

std::atomic<unsigned long long> last_stream_id{0};

std::shared_ptr<Stream> created_stream(CUstream handle) {
    auto stream = driver().streams.find(handle);
    require(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
    stream->context.check();
    return stream;
}

}  // namespace

Stream::Stream(Context& owner, Kind stream_kind, unsigned stream_flags, int stream_priority)
    : context(owner), kind(stream_kind), flags(stream_flags), priority(stream_priority), id(++last_stream_id) {}

CUstream Stream::handle() const {
    if (kind == Kind::Legacy) return CU_STREAM_LEGACY;
    if (kind == Kind::PerThread) return CU_STREAM_PER_THREAD;
    return reinterpret_cast<CUstream>(const_cast<Stream*>(this));
}

std::shared_ptr<Stream> stream_of(CUstream handle) {
    if (handle == nullptr) handle = Call::per_thread_default_stream() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    const bool is_default = handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    // A stream that was created is used without a current context, too.
    if (!is_default && current_or_null() == nullptr) return created_stream(handle);
    Context& context = current();
    if (handle == CU_STREAM_LEGACY) return context.legacy;
    if (handle == CU_STREAM_PER_THREAD) {
        auto& stream = thread_state().streams[context.id()];
        if (!stream) {
            stream = std::make_shared<Stream>(context, Stream::Kind::PerThread, 0u, 0);
            const std::lock_guard lock(driver().order);
            context.streams.insert(stream.get());
        }
        return stream;
    }
    return created_stream(handle);
}

std::vector<TaskRef> predecessors(const Stream& stream) {
    std::vector<TaskRef> before;
    const auto need = [&](const TaskRef& task) {
        if (task && !task->done()) before.push_back(task);
    };
    need(stream.tail);
    if (stream.kind == Stream::Kind::Legacy) {
        // The legacy stream waits for every blocking stream, destroyed ones included.
        for (const Stream* other : stream.context.streams)
            if (other->blocking()) need(other->tail);
        std::erase_if(stream.context.orphans, [](const Context::Orphan& orphan) { return orphan.task->done(); });
        for (const Context::Orphan& orphan : stream.context.orphans)
            if (orphan.blocking) need(orphan.task);
    } else if (stream.blocking()) {
        need(stream.context.legacy->tail);
    }
    return before;
}

void wait_for_room(Stream& stream) {
    const auto most = driver().options.queue;
    if (most == 0) return;
    for (;;) {
        TaskRef oldest;
        {
            const std::lock_guard lock(driver().order);
            auto& queued = stream.queued;
            while (!queued.empty() && queued.front()->done()) queued.pop_front();
            if (queued.size() < most) return;
            oldest = queued.front();
        }
        driver().engine.wait(oldest);
    }
}

TaskRef append(Stream& stream, std::function<void()> work, std::span<const TaskRef> also_after) {
    std::vector<TaskRef> before = predecessors(stream);
    before.insert(before.end(), also_after.begin(), also_after.end());
    auto task = std::make_shared<Task>(std::move(work), stream.priority);
    driver().engine.submit(task, before);
    stream.tail = task;
    if (driver().options.queue != 0) stream.queued.push_back(task);
    return task;
}

std::vector<TaskRef> all_tails(const Context& context) {
    std::erase_if(context.orphans, [](const Context::Orphan& orphan) { return orphan.task->done(); });
    std::vector<TaskRef> tails;
    for (const Context::Orphan& orphan : context.orphans) tails.push_back(orphan.task);
    if (context.legacy && context.legacy->tail) tails.push_back(context.legacy->tail);
    for (const Stream* stream : context.streams)
        if (stream->tail) tails.push_back(stream->tail);
    return tails;
}

void synchronize(Stream& stream) {
    std::vector<TaskRef> before;
    {
        const std::lock_guard lock(driver().order);
        before = predecessors(stream);
    }
    driver().engine.wait(before);
    stream.context.check();
}

void synchronize(Context& context) {
    std::vector<TaskRef> tails;
    {
        const std::lock_guard lock(driver().order);
        tails = all_tails(context);
    }
    driver().engine.wait(tails);
    require(context.sticky() == CUDA_SUCCESS, context.sticky());
}

Turn::Turn(Stream& stream) : stream_(stream) {
    const std::lock_guard lock(driver().order);
    before_ = predecessors(stream);
    driver().engine.hold(marker_, before_);
    stream.tail = marker_;
}

Turn::~Turn() { driver().engine.finish(marker_); }

void Turn::wait() const {
    driver().engine.wait(before_);
    stream_.context.check();
}

void retire(Stream& stream) {
    const std::lock_guard lock(driver().order);
    stream.context.streams.erase(&stream);
    if (stream.tail && !stream.tail->done()) stream.context.orphans.push_back({stream.tail, stream.blocking()});
}

}  // namespace hpe::soft
