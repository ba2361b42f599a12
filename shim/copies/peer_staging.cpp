// SPDX-License-Identifier: MIT
// Companions, the pipeline of blocks, and the trials that tell which way is faster.
#include "shim/copies/peer_staging.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "shim/base/log.h"
#include "shim/base/spin_lock.h"
#include "shim/copies/crossover.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"
#include "shim/observe/report.h"
#include "shim/observe/trace.h"

namespace hpe::peer_staging {

namespace detail {

constexpr unsigned kBlocks = 4;
constexpr std::size_t kBlockBytes = std::size_t{4} << 20, kBytes = kBlocks * kBlockBytes;

// Follows one stream of the program's at a time. It fills blocks from its own GPU or empties them there; the program's
// stream does the other.
struct Companion {
    bool ready = false;             // all that follows is made, and its events tell what was done
    std::atomic<bool> held{false};  // by a copy that is being enqueued
    bool empties = false;
    CUcontext context = nullptr;     // its own
    CUcontext partner = nullptr;     // where the program's stream is; null: the entry is free
    unsigned long long follows = 0;  // that stream, the last time
    CUstream stream = nullptr;
    CUevent after_own = nullptr;      // recorded in the companion's stream
    CUevent after_program = nullptr;  // recorded in the program's; of the partner
    std::byte* memory = nullptr;
    std::array<CUevent, kBlocks> emptied{};  // of the context that blocks are emptied in
    std::array<bool, kBlocks> filled{};      // at least once, so that the event says something
};

// Two timing events around one copy.
struct Trial {
    enum class State : unsigned char { Free, Held, Pending };
    std::atomic<State> state{State::Free};
    CUcontext context = nullptr;
    CUevent begin = nullptr, end = nullptr;
    std::size_t bytes = 0;
    Crossover::Way way = Crossover::Way::Driver;
};

constinit std::atomic<unsigned> wishes{0};

}  // namespace detail

using namespace detail;

namespace {

// Copies of more pieces fill the device's queue, and to enqueue them may then wait for the device, which may be waiting
// for this thread.
constexpr std::size_t kMostAhead = 128;

struct Companions {
    static constexpr unsigned kMost = 8;

    std::atomic<CUcontext> context{nullptr};
    SpinLock lock;  // guards what follows but not what a held companion is made of
    std::array<Companion, kMost> companions{};
    // Asked for while the device was at work.
    struct Wish {
        CUcontext partner = nullptr;
        bool empties = false;
    } wish;
};

constinit ByContext<Companions> all;
constinit Crossover ways;
constinit Trial trial;
constinit std::atomic<unsigned> waits{0};  // while something was wished for

std::size_t class_of(std::size_t bytes) noexcept { return std::min(bytes, Crossover::kDecisive); }

// Small ones fill the pipeline sooner, large ones cost less.
std::size_t piece_of(std::size_t bytes) noexcept {
    constexpr std::size_t kPage = 4096, kSmall = std::size_t{1} << 20, kMiddling = std::size_t{2} << 20;
    if (bytes > (std::size_t{64} << 20)) return kBlockBytes;
    return std::clamp(bytes / 8 / kPage * kPage, kSmall, kMiddling);
}

bool make_event(CUcontext context, CUevent& event) noexcept {
    if (event != nullptr) return true;
    ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS &&
        twice([&] { return driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); }) == CUDA_SUCCESS) {
        return true;
    }
    event = nullptr;
    return false;
}

// What could not be made this time is the next time. One whose events tell nothing is as good as new once its stream
// has done all.
bool make(Companion& companion) noexcept {
    const auto context = companion.context;
    ContextScope scope(context);
    if (scope.result() != CUDA_SUCCESS) return false;
    if (companion.stream == nullptr &&
        twice([&] { return driver.cuStreamCreateWithPriority(&companion.stream, CU_STREAM_NON_BLOCKING, 0); }) !=
            CUDA_SUCCESS) {
        companion.stream = nullptr;
        return false;
    }
    if (driver.cuStreamQuery(companion.stream) != CUDA_SUCCESS) return false;
    companion.filled = {};
    const auto emptier = companion.empties ? context : companion.partner;
    if (!make_event(context, companion.after_own) || !make_event(companion.partner, companion.after_program) ||
        !std::all_of(companion.emptied.begin(), companion.emptied.end(),
                     [&](CUevent& event) { return make_event(emptier, event); })) {
        return false;
    }
    if (companion.memory == nullptr) {
        if (!pinned::take(kBytes)) return false;
        void* memory = nullptr;
        if (twice([&] { return driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE); }) != CUDA_SUCCESS) {
            pinned::give_back(kBytes);
            return false;
        }
        companion.memory = static_cast<std::byte*>(memory);
    }
    log::debug("copies between contexts {} and {} can go through pinned blocks", static_cast<const void*>(context),
               static_cast<const void*>(companion.partner));
    return companion.ready = true;
}

void destroy(CUcontext context, CUevent& event) noexcept {
    if (event == nullptr) return;
    ContextScope scope(context);
    if (scope.result() == CUDA_SUCCESS) twice([&] { return driver.cuEventDestroy_v2(event); });
    event = nullptr;
}

// One of its two contexts ended, with what was made there: what is in the other one goes or is kept for another
// partner.
void end(Companion& companion, CUcontext context) noexcept {
    const bool own = context == companion.context;
    if (!own) companion.after_program = nullptr;
    destroy(companion.partner, companion.after_program);
    for (auto& event : companion.emptied) {
        if (own == companion.empties) event = nullptr;
        destroy(own ? companion.partner : companion.context, event);
    }
    companion.filled = {};
    companion.partner = nullptr;
    companion.ready = false;
    if (!own) return;
    if (companion.memory != nullptr) pinned::give_back(kBytes);
    companion.memory = nullptr;
    companion.stream = nullptr;
    companion.after_own = nullptr;
}

// Nobody can tell what is still done with these: they stay until their context ends.
void lose(Companion& companion) noexcept {
    companion.stream = nullptr;
    companion.memory = nullptr;
    companion.after_own = companion.after_program = nullptr;
    companion.emptied = {};
}

// Held, or nullptr. With `make_one` one is made if there is none to be had.
Companion* take(Companions& companions, CUcontext partner, bool empties, unsigned long long stream,
                bool make_one) noexcept {
    std::scoped_lock lock(companions.lock);
    const auto fits = [&](const Companion& c) {
        return !c.held.load(std::memory_order_acquire) && c.partner == partner && c.empties == empties;
    };
    Companion* found = nullptr;
    for (auto& c : companions.companions) {
        if (!fits(c) || !c.ready) continue;
        if (c.follows == stream) {
            found = &c;
            break;
        }
        // One that has done all it was given waits for nobody.
        if (found == nullptr && driver.cuStreamQuery(c.stream) == CUDA_SUCCESS) found = &c;
    }
    if (found == nullptr && make_one) {
        const auto place = std::find_if(companions.companions.begin(), companions.companions.end(),
                                        [&](const Companion& c) { return fits(c) || c.partner == nullptr; });
        if (place == companions.companions.end()) return nullptr;
        place->context = companions.context.load(std::memory_order_relaxed);
        place->partner = partner;
        place->empties = empties;
        if (make(*place)) found = place;
    }
    if (found == nullptr) return nullptr;
    found->held.store(true, std::memory_order_relaxed);
    found->follows = stream;
    return found;
}

// False: something was wished for already.
bool wish(Companions& companions, Companions::Wish wish) noexcept {
    std::scoped_lock lock(companions.lock);
    if (companions.wish.partner != nullptr) return false;
    companions.wish = wish;
    wishes.fetch_add(1, std::memory_order_relaxed);
    return true;
}

Companions::Wish take_wish(Companions& companions) noexcept {
    std::scoped_lock lock(companions.lock);
    if (companions.wish.partner != nullptr) wishes.fetch_sub(1, std::memory_order_relaxed);
    return std::exchange(companions.wish, {});
}

bool change(Trial::State from, Trial::State to) noexcept {
    return trial.state.compare_exchange_strong(from, to, std::memory_order_acq_rel);
}

void end_trial() noexcept {
    destroy(trial.context, trial.begin);
    destroy(trial.context, trial.end);
    trial.state.store(Trial::State::Free, std::memory_order_release);
}

// What the last trial tells, if it has ended.
void learn() noexcept {
    if (!change(Trial::State::Pending, Trial::State::Held)) return;
    ContextScope scope(trial.context);
    const auto ended = scope.result() == CUDA_SUCCESS ? driver.cuEventQuery(trial.end) : scope.result();
    if (ended == CUDA_ERROR_NOT_READY) {
        trial.state.store(Trial::State::Pending, std::memory_order_release);
        return;
    }
    float milliseconds = 0;
    if (ended == CUDA_SUCCESS &&
        twice([&] { return driver.cuEventElapsedTime(&milliseconds, trial.begin, trial.end); }) == CUDA_SUCCESS) {
        const auto bytes = class_of(trial.bytes);
        const auto share = static_cast<double>(bytes) / static_cast<double>(trial.bytes);
        ways.took(bytes, trial.way, static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6 * share));
    }
    end_trial();
}

Trial* begin_trial(const Copy& copy, CUcontext context, CUstream stream, Crossover::Way way) noexcept {
    if (!change(Trial::State::Free, Trial::State::Held)) return nullptr;
    trial.context = context;
    trial.bytes = copy.bytes;
    trial.way = way;
    const auto create = [](CUevent& event) {
        const auto result = twice([&] { return driver.cuEventCreate(&event, CU_EVENT_DEFAULT); });
        if (result != CUDA_SUCCESS) event = nullptr;
        return result == CUDA_SUCCESS;
    };
    if (create(trial.begin) && create(trial.end) &&
        twice([&] { return driver.cuEventRecord(trial.begin, stream); }) == CUDA_SUCCESS) {
        return &trial;
    }
    end_trial();
    return nullptr;
}

// What one copy puts into two streams. The first step that fails is the last.
class Pipeline {
public:
    Pipeline(Companion& companion, CUstream program) noexcept : companion_(companion), program_(program) {}

    bool run(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) noexcept {
        auto& c = companion_;
        const auto filler = c.empties ? program_ : c.stream, emptier = c.empties ? c.stream : program_;
        const auto filled = c.empties ? c.after_program : c.after_own;
        if (!c.empties) {
            in(program_, [&] { record(c.after_program, program_); });
            in(c.stream, [&] { wait(c.stream, c.after_program); });
        }
        const auto piece = piece_of(bytes);
        unsigned block = 0;
        for (std::size_t at = 0; at < bytes && ok_; at += piece, block = (block + 1) % kBlocks) {
            auto* const memory = c.memory + block * kBlockBytes;
            const auto size = std::min(piece, bytes - at);
            in(filler, [&] {
                if (c.filled[block]) wait(filler, c.emptied[block]);
                step([&] { return driver.cuMemcpyDtoHAsync_v2(memory, from + at, size, filler); });
                record(filled, filler);
            });
            in(emptier, [&] {
                wait(emptier, filled);
                step([&] { return driver.cuMemcpyHtoDAsync_v2(to + at, memory, size, emptier); });
                record(c.emptied[block], emptier);
            });
            c.filled[block] = ok_;
        }
        if (c.empties) in(program_, [&] { wait(program_, c.emptied[(block + kBlocks - 1) % kBlocks]); });
        return ok_;
    }

    // After an error: what the program's stream is given from now on comes after all that was enqueued, and what the
    // companion's is given, too.
    CUresult join() noexcept {
        auto& c = companion_;
        c.ready = false;
        ok_ = true;
        in(program_, [&] { record(c.after_program, program_); });
        in(c.stream, [&] {
            wait(c.stream, c.after_program);
            record(c.after_own, c.stream);
        });
        in(program_, [&] { wait(program_, c.after_own); });
        if (ok_) return CUDA_SUCCESS;
        ContextScope scope(c.context);
        const auto stream = c.stream;
        lose(c);
        return twice([&] { return driver.cuStreamSynchronize(stream); });
    }

private:
    // The program's context is current; the companion's is for its own stream.
    template <class Steps>
    void in(CUstream stream, Steps&& steps) noexcept {
        if (stream == program_) return steps();
        ContextScope scope(companion_.context);
        ok_ = ok_ && scope.result() == CUDA_SUCCESS;
        steps();
    }
    template <class Call>
    void step(Call&& call) noexcept {
        ok_ = ok_ && twice(call) == CUDA_SUCCESS;
    }
    void record(CUevent event, CUstream stream) noexcept {
        step([&] { return driver.cuEventRecord(event, stream); });
    }
    void wait(CUstream stream, CUevent event) noexcept {
        step([&] { return driver.cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_DEFAULT); });
    }

    Companion& companion_;
    const CUstream program_;
    bool ok_ = true;
};

}  // namespace

Attempt::Attempt(const Copy& copy, Ordered ordered) noexcept : copy_(copy) {
    if (in_flight.capturing_anywhere()) return;
    Inside inside;
    const auto stream = named(copy.stream, copy.flavour);
    const auto context = context_if_current(stream);
    if (context == nullptr || (context != copy.to_context && context != copy.from_context)) return;
    const CaptureRelaxed relaxed;
    learn();
    auto way = ways.choose(class_of(copy.bytes), true);
    const bool measure = ways.measuring(class_of(copy.bytes));
    unsigned long long id = 0;
    if (way == Crossover::Way::Staged && twice([&] { return driver.cuStreamGetId(stream, &id); }) == CUDA_SUCCESS &&
        (copy.bytes <= kMostAhead * piece_of(copy.bytes) || in_flight.idle())) {
        const bool empties = context == copy.from_context;
        Companions* companions = all.of(empties ? copy.to_context : copy.from_context);
        if (companions != nullptr) {
            companion_ = take(*companions, context, empties, id, false);
            // Asked once: afterwards the program's next wait is looked at.
            if (companion_ == nullptr && wish(*companions, {context, empties}) && in_flight.idle()) {
                companion_ = take(*companions, context, empties, id, true);
                if (companion_ != nullptr) take_wish(*companions);
            }
        }
    }
    if (companion_ != nullptr) {
        const auto with =
            ordered == Ordered::InStream ? reservations::OrderedWith::Stream : reservations::OrderedWith::Everything;
        reservation_.emplace(stream, Touched{{copy.to, copy.bytes}, {copy.from, copy.bytes}}, with);
        // A capture may have begun until then.
        if (!reservation_->held() || in_flight.capturing_anywhere()) {
            reservation_.reset();
            companion_->held.store(false, std::memory_order_release);
            companion_ = nullptr;
        }
    }
    if (companion_ == nullptr) way = Crossover::Way::Driver;
    if (measure) trial_ = begin_trial(copy, context, stream, way);
}

Attempt::~Attempt() {
    if (companion_ != nullptr) companion_->held.store(false, std::memory_order_release);
    if (trial_ == nullptr) return;
    Inside inside;
    end_trial();
}

CUresult Attempt::enqueue(std::size_t begin, std::size_t bytes, bool& made) noexcept {
    Inside inside;
    const CaptureRelaxed relaxed;
    trace::Transfer traced(trace::Kind::Staging, "staged copy between devices", bytes);
    Pipeline pipeline(*companion_, named(copy_.stream, copy_.flavour));
    made = pipeline.run(copy_.to + begin, copy_.from + begin, bytes);
    if (made) {
        report::copy_staged(bytes);
        traced.done();
        return CUDA_SUCCESS;
    }
    // How long both ways together take is no trial.
    if (std::exchange(trial_, nullptr) != nullptr) end_trial();
    return pipeline.join();
}

void Attempt::succeeded() noexcept {
    if (trial_ == nullptr) return;
    Inside inside;
    const auto stream = named(copy_.stream, copy_.flavour);
    if (twice([&] { return driver.cuEventRecord(trial_->end, stream); }) != CUDA_SUCCESS) return;
    trial_->state.store(Trial::State::Pending, std::memory_order_release);
    trial_ = nullptr;
}

// Seldom once it has not worked often: asking whether the device is idle costs some tens of microseconds.
void detail::grant_wishes() noexcept {
    const auto turn = waits.fetch_add(1, std::memory_order_relaxed);
    if ((turn >= 64 && turn % 64 != 0) || in_flight.capturing_anywhere()) return;
    Inside inside;
    const CaptureRelaxed relaxed;
    if (!in_flight.idle_after_wait()) return;
    for (auto& companions : all) {
        const auto wish = take_wish(companions);
        if (wish.partner == nullptr) continue;
        if (Companion* made = take(companions, wish.partner, wish.empties, 0, true)) {
            made->held.store(false, std::memory_order_release);
        }
    }
}

void forget(CUcontext context) noexcept {
    // Its events went with it; a trial that another thread holds is another context's.
    if (change(Trial::State::Pending, Trial::State::Held)) {
        const bool gone = trial.context == context;
        if (gone) trial.begin = trial.end = nullptr;
        trial.state.store(gone ? Trial::State::Free : Trial::State::Pending, std::memory_order_release);
    }
    for (auto& companions : all) {
        const auto owner = companions.context.load(std::memory_order_acquire);
        std::scoped_lock lock(companions.lock);
        if (companions.wish.partner != nullptr && (owner == context || companions.wish.partner == context)) {
            companions.wish = {};
            wishes.fetch_sub(1, std::memory_order_relaxed);
        }
        for (auto& companion : companions.companions) {
            if (companion.context == context || companion.partner == context) end(companion, context);
        }
    }
}

}  // namespace hpe::peer_staging
