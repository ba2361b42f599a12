// SPDX-License-Identifier: MIT
// The worker pool and the loop with which each of its threads, and the caller of a launch, takes blocks of a grid.
#include "toolchain/softgpu/exec/launch.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <new>
#include <system_error>
#include <thread>

#include "toolchain/softgpu/exec/scheduler.h"

namespace hpe::soft::exec {
namespace {

// A worker keeps several unfinished blocks only when they wait for others; as many as an SM could hold threads.
constexpr std::uint64_t patience = 64;  // turns of a block before another one is started beside it
constexpr std::size_t most_resident = 64;
std::atomic<std::uint64_t> executed_total{0};

struct Job {
    LaunchState* launch = nullptr;
    unsigned helpers = 0;  // inside
    unsigned wanted = 0;   // how many more may join
};

class Pool {
public:
    // Offers the launch to the workers; the caller works on it too and then calls withdraw().
    void offer(Job& job, unsigned helpers) {
        {
            const std::lock_guard guard(lock_);
            job.wanted = helpers;
            jobs_.push_back(&job);
            while (threads_ < helpers && threads_ < limit()) {
                try {
                    std::thread([this] { serve(); }).detach();
                    threads_++;
                } catch (const std::system_error&) {
                    break;  // fewer workers: slower, not wrong
                }
            }
        }
        if (helpers == 1)
            wake_.notify_one();
        else
            wake_.notify_all();
    }

    void withdraw(Job& job) {
        std::unique_lock guard(lock_);
        std::erase(jobs_, &job);
        left_.wait(guard, [&] { return job.helpers == 0; });
    }

    unsigned limit() {
        if (count_ == 0) {
            cpu_set_t set;
            CPU_ZERO(&set);
            const int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
            count_ = n > 0 ? static_cast<unsigned>(n) : 1;
        }
        return count_;
    }
    void set_limit(unsigned count) { count_ = count; }

private:
    void serve();

    std::mutex lock_;
    std::condition_variable wake_, left_;
    std::deque<Job*> jobs_;
    unsigned threads_ = 0;
    std::atomic<unsigned> count_{0};
};

// Never destroyed: detached workers use it until the process ends. A forked child gets a new one.
Pool* pool = nullptr;
std::mutex pool_lock;
Pool& the_pool() {
    const std::lock_guard guard(pool_lock);
    if (pool == nullptr) pool = new Pool;
    return *pool;
}

void out_of_memory(LaunchState& launch) {
    const std::lock_guard guard(launch.lock);
    if (!launch.failure) {
        launch.failure.fault = Fault::InvalidLaunch;
        launch.failure.message = "out of memory for the blocks of the kernel " + launch.kernel->name;
    }
    launch.failed = true;
}

// Takes blocks until there are none left.
void work(LaunchState& launch) {
    Worker worker;
    worker.launch = &launch;
    worker.memory = launch.memory;
    std::vector<std::unique_ptr<Block>> resident, spare;
    try {
        while (!launch.failed.load(std::memory_order_relaxed)) {
            // One block at a time, unless those at hand seem to wait for blocks that have not started.
            bool admit = resident.empty() || launch.cooperative;
            if (!admit && resident.size() < most_resident)
                admit =
                    std::all_of(resident.begin(), resident.end(), [](const auto& b) { return b->slices > patience; });
            if (admit && launch.next_block.load(std::memory_order_relaxed) < launch.blocks) {
                const std::uint64_t linear = launch.next_block.fetch_add(1);
                if (linear < launch.blocks) {
                    if (spare.empty()) spare.push_back(std::make_unique<Block>());
                    auto block = std::move(spare.back());
                    spare.pop_back();
                    if (!start_block(*block, worker, launch, linear)) {
                        out_of_memory(launch);
                        break;
                    }
                    resident.push_back(std::move(block));
                }
            }
            if (resident.empty()) break;
            for (std::size_t n = 0; n < resident.size();) {
                const Turn turn = run_block(*resident[n]);
                if (turn == Turn::Failed) break;
                if (turn == Turn::Done) {
                    spare.push_back(std::move(resident[n]));
                    resident[n] = std::move(resident.back());
                    resident.pop_back();
                } else {
                    n++;
                }
            }
            if (!resident.empty() && resident.front()->slices > patience) sched_yield();
        }
    } catch (const std::bad_alloc&) {
        out_of_memory(launch);
    }
    launch.executed.fetch_add(worker.executed, std::memory_order_relaxed);
    if (!worker.output.empty()) {
        const std::lock_guard guard(launch.lock);
        launch.output += worker.output;
    }
}

void Pool::serve() {
    std::unique_lock guard(lock_);
    while (true) {
        const auto job = std::find_if(jobs_.begin(), jobs_.end(), [](const Job* j) { return j->wanted > 0; });
        if (job == jobs_.end()) {
            wake_.wait(guard);
            continue;
        }
        Job& mine = **job;
        mine.wanted--;
        mine.helpers++;
        guard.unlock();
        work(*mine.launch);
        guard.lock();
        if (--mine.helpers == 0) left_.notify_all();
    }
}

}  // namespace

std::string position(const char* what, std::uint64_t x, std::uint64_t y, std::uint64_t z) {
    return std::string(what) + " (" + std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z) + ")";
}

const Instr* fail(Warp& w, const Instr* i, Fault fault, unsigned lane, const std::string& what) {
    LaunchState& launch = *w.block->launch;
    {
        const std::lock_guard guard(launch.lock);
        if (!launch.failure) {
            const Dim3& b = w.block->id;
            launch.failure.fault = fault;
            launch.failure.message = what + ": kernel " + launch.kernel->name + ", " +
                                     position("block", b.x, b.y, b.z) + ", " +
                                     position("thread", w.tid[0][lane], w.tid[1][lane], w.tid[2][lane]) + ", " +
                                     launch.program->source(*w.frame->code, *i);
        }
    }
    launch.failed = true;
    return w.leave(Stop::Fault, i);
}

const Instr* fail_address(Warp& w, const Instr* i, unsigned lane, std::uint64_t address, unsigned bytes, bool write,
                          bool misaligned) {
    char text[128];
    std::snprintf(text, sizeof text, "%s %s of %u bytes at 0x%llx", misaligned ? "misaligned" : "illegal",
                  write ? "write" : "read", bytes, static_cast<unsigned long long>(address));
    return fail(w, i, misaligned ? Fault::MisalignedAddress : Fault::IllegalAddress, lane, text);
}

void run_grid(LaunchState& launch) {
    Pool& workers = the_pool();
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    launch.started_ns = static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
    const auto helpers =
        static_cast<unsigned>(std::min<std::uint64_t>(workers.limit() - 1, launch.blocks > 0 ? launch.blocks - 1 : 0));
    if (helpers == 0) {
        work(launch);
    } else {
        Job job;
        job.launch = &launch;
        workers.offer(job, helpers);
        work(launch);
        workers.withdraw(job);
    }
    executed_total += launch.executed.load();
    if (!launch.output.empty()) {
        std::fwrite(launch.output.data(), 1, launch.output.size(), stdout);
        std::fflush(stdout);
    }
}

}  // namespace hpe::soft::exec

namespace hpe::soft {

std::uint64_t executed_instructions() { return exec::executed_total.load(); }

void set_worker_threads(unsigned count) { exec::the_pool().set_limit(count); }

void forget_workers() {
    // The parent's pool may be locked by a thread that this process does not have, so it is left behind.
    new (&exec::pool_lock) std::mutex;
    exec::pool = nullptr;
}

}  // namespace hpe::soft
