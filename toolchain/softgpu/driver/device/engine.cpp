// SPDX-License-Identifier: MIT
// The task graph and its workers.
#include "toolchain/softgpu/driver/device/engine.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>

#include "toolchain/softgpu/driver/base/call.h"

namespace hpe::soft {
namespace {
// Tasks may block on each other through the application (host functions, flags in memory), so the bound is far above
// what a program has in flight; hardware has one too (128 queues).
constexpr unsigned most_threads = 512;
constexpr auto idle_time = std::chrono::seconds(2);

// Most tasks, and most pauses between them, are shorter than going to sleep and being woken.
template <class Condition>
bool soon(Condition&& condition) {
    constexpr int most = 40;
    for (int i = 0; i < most; ++i) {
        if (condition()) return true;
        sched_yield();
    }
    return condition();
}
}  // namespace

void Engine::submit(const TaskRef& task, std::span<const TaskRef> after) {
    const std::lock_guard lock(mutex_);
    for (const TaskRef& before : after) {
        if (!before || before->done()) continue;
        before->dependents_.push_back(task);
        ++task->waiting_for_;
    }
    if (task->waiting_for_ > 0) return;
    if (task->work_)
        ready(task);
    else
        complete(task);
}

void Engine::hold(const TaskRef& task, std::span<const TaskRef> after) {
    {
        const std::lock_guard lock(mutex_);
        ++task->waiting_for_;
    }
    submit(task, after);
}

void Engine::finish(const TaskRef& task) {
    const std::lock_guard lock(mutex_);
    if (--task->waiting_for_ == 0) complete(task);
}

void Engine::ready(TaskRef task) {
    // Higher priority is the smaller number; equal ones in order of arrival.
    auto place = ready_.end();
    while (place != ready_.begin() && (*(place - 1))->priority_ > task->priority_) --place;
    ready_.insert(place, std::move(task));
    given_.store(ready_.size(), std::memory_order_relaxed);
    // A worker that is just finishing a task will look at the queue itself.
    if (idle_ + finishing_ < ready_.size() && threads_ < most_threads) spawn();
    // Fewer workers than wanted: later. None at all: never, and who is told so has given nothing else that is not done.
    if (threads_ == 0) {
        ready_.clear();
        given_.store(0, std::memory_order_relaxed);
        fail(CUDA_ERROR_OUT_OF_MEMORY);
    }
    if (ready_.size() > finishing_) work_ready_.notify_one();
}

void Engine::spawn() {
    // Asynchronous signals are the application's business; faults stay deliverable, because host functions run here.
    sigset_t all, before;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, thread_main, this) == 0) ++threads_;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void* Engine::thread_main(void* engine) {
    pthread_setname_np(pthread_self(), "soft-device");
    static_cast<Engine*>(engine)->work();
    return nullptr;
}

void Engine::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        while (ready_.empty()) {
            ++idle_;
            lock.unlock();
            soon([this] { return given_.load(std::memory_order_relaxed) != 0; });
            lock.lock();
            const bool more = work_ready_.wait_for(lock, idle_time, [this] { return !ready_.empty(); });
            --idle_;
            if (!more) {
                --threads_;
                return;
            }
        }
        TaskRef task = std::move(ready_.front());
        ready_.pop_front();
        given_.store(ready_.size(), std::memory_order_relaxed);
        lock.unlock();
        task->work_();
        task->work_ = {};  // what it held goes now, outside the lock
        lock.lock();
        ++finishing_;
        complete(std::move(task));
        --finishing_;
    }
}

void Engine::complete(TaskRef first) {
    std::vector<TaskRef> finished{std::move(first)};
    while (!finished.empty()) {
        const TaskRef task = std::move(finished.back());
        finished.pop_back();
        task->finished_ = Clock::now();
        task->done_.store(true, std::memory_order_release);
        for (TaskRef& next : task->dependents_) {
            if (--next->waiting_for_ > 0) continue;
            if (next->work_)
                ready(std::move(next));
            else
                finished.push_back(std::move(next));
        }
        task->dependents_.clear();
    }
    if (waiters_ > 0) task_done_.notify_all();
}

void Engine::wait(const TaskRef& task) {
    if (!task || soon([&] { return task->done(); })) return;
    std::unique_lock lock(mutex_);
    ++waiters_;
    task_done_.wait(lock, [&] { return task->done(); });
    --waiters_;
}

void Engine::wait(std::span<const TaskRef> tasks) {
    for (const TaskRef& task : tasks) wait(task);
}

}  // namespace hpe::soft
