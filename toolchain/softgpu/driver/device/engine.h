// SPDX-License-Identifier: MIT
// Runs the device's asynchronous work: a graph of tasks, each started when all it waits for is done, on worker threads
// that are made when work is ready and nobody is idle, and end after a while without work. It stands for the hardware's
// queues behind streams (CUDA C++ Programming Guide, "Asynchronous Concurrent Execution").
//
// A task is shared by whoever waits for it; what it held of its work is gone once it is done. Threads: any; an engine
// lives as long as the process. Errors: exceptions of type Error (call.h); work must throw none.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace hpe::soft {

using Clock = std::chrono::steady_clock;

class Task {
public:
    // Without work it is a marker: done as soon as everything before it is.
    explicit Task(std::function<void()> work = {}, int priority = 0) : work_(std::move(work)), priority_(priority) {}

    bool done() const { return done_.load(std::memory_order_acquire); }
    Clock::time_point finished() const { return finished_; }  // valid once done

private:
    friend class Engine;
    std::function<void()> work_;
    int priority_;
    unsigned waiting_for_ = 0;                       // guarded by the engine's mutex
    std::vector<std::shared_ptr<Task>> dependents_;  // guarded by the engine's mutex
    Clock::time_point finished_{};
    std::atomic<bool> done_{false};
};
using TaskRef = std::shared_ptr<Task>;

class Engine {
public:
    // Starts `task` when every task of `after` is done (null entries count as done). Fails with OUT_OF_MEMORY when
    // there is no worker and none can be had.
    void submit(const TaskRef& task, std::span<const TaskRef> after);
    // As submit(), of a marker that besides waits for finish().
    void hold(const TaskRef& task, std::span<const TaskRef> after);
    void finish(const TaskRef& task);
    void wait(const TaskRef& task);
    void wait(std::span<const TaskRef> tasks);

private:
    void complete(TaskRef task);  // with mutex_ held
    void ready(TaskRef task);     // with mutex_ held
    void spawn();                 // with mutex_ held
    void work();
    static void* thread_main(void* engine);

    std::mutex mutex_;
    std::condition_variable work_ready_, task_done_;
    std::deque<TaskRef> ready_;
    std::atomic<std::size_t> given_{0};  // ready_.size(), for workers that look without the lock
    unsigned idle_ = 0, finishing_ = 0, threads_ = 0, waiters_ = 0;
};

}  // namespace hpe::soft
