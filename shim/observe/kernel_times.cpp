// SPDX-License-Identifier: MIT
// Pairs of events, their references and what they may cost.
#include "shim/observe/kernel_times.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "shim/base/active.h"
#include "shim/base/errno_kept.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/spin_lock.h"
#include "shim/base/thread.h"
#include "shim/driver/by_context.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"
#include "shim/observe/trace.h"

namespace hpe::kernel_times {

// An event on a stream of libhpe's own, and when it was on the host's clock.
struct Reference {
    CUevent event = nullptr;
    std::uint64_t host = 0;  // nanoseconds; 0: none yet
    unsigned used = 0;       // by so many pairs
};

struct Pair {
    CUevent begin = nullptr, end = nullptr;
    Reference* reference = nullptr;
    const char* name = nullptr;
    std::uint64_t issued = 0;  // host time
    std::uint64_t stream = 0;
    std::uint32_t thread = 0;
    enum class Stage : std::uint8_t { Free, Issuing, Running } stage = Stage::Free;
};

using Pairs = std::array<Pair, 256>;

struct Context {
    SpinLock lock;
    bool closed HPE_GUARDED_BY(lock) = false;
    CUstream own HPE_GUARDED_BY(lock) = nullptr;
    std::array<Reference, 2> references HPE_GUARDED_BY(lock){};
    unsigned newest HPE_GUARDED_BY(lock) = 0;
    std::uint64_t next_reference HPE_GUARDED_BY(lock) = 0;  // host time
    std::uint64_t ended HPE_GUARDED_BY(lock) = 0;           // how many contexts had this place before
    Pairs* pairs HPE_GUARDED_BY(lock) = nullptr;            // from the first launch on, for ever
    unsigned made HPE_GUARDED_BY(lock) = 0;                 // of them
    std::atomic<unsigned> running{0};
};

namespace {

// Places of their own: launches, in contexts that have ended, too, leave those of the parts that move data alone.
constinit ContextPlaces places;
constinit ByContext<Context, places> contexts;
constinit std::atomic<bool> over{false};  // the process ends: the driver may be gone
constinit std::atomic<std::uint64_t> in_vain{0};

// --- what it may cost ------------------------------------------------------------------------------------------------

constexpr std::uint64_t kShare = 300;
constexpr std::uint64_t kCredit = 2'000'000;  // ns: a process's start varies by as much anyway
// About as long two events hold a stream up; the host cannot measure it.
constexpr std::uint64_t kDevicePart = 3'000;
constexpr std::uint64_t kReferenceLife = 4'000'000'000;  // the driver gives float milliseconds: 0.25 us after 4 s

// The first launch has the credit already: as if the time to earn it had passed.
void open_account(std::uint64_t now) noexcept {
    auto none = affordable_from.load(std::memory_order_relaxed);
    if (none != 0) return;
    const auto earlier = std::min(now - 1, ticks::ticks_in(kCredit * kShare));
    affordable_from.compare_exchange_strong(none, now - earlier, std::memory_order_relaxed);
}
void pay(std::uint64_t ticks) noexcept { affordable_from.fetch_add(ticks * kShare, std::memory_order_relaxed); }
bool affordable(std::uint64_t now) noexcept { return now >= affordable_from.load(std::memory_order_relaxed); }

enum class By { Host, HostAndDevice };

// Counts the time until its end; errno stays as it was.
class Bill {
public:
    explicit Bill(By payer) noexcept : payer_(payer) {}
    ~Bill() {
        static const auto device_part = ticks::ticks_in(kDevicePart);
        const auto took = ticks::now() - begin_;
        pay(payer_ == By::Host ? took : took + device_part);
    }
    Bill(const Bill&) = delete;
    Bill& operator=(const Bill&) = delete;

private:
    const ErrnoKept kept_;
    const std::uint64_t begin_ = ticks::now();
    const By payer_;
};

// Scope of driver calls whose time is counted; calls that libcuda makes to itself pass our doors.
struct Paid {
    explicit Paid(By payer = By::Host) noexcept : bill(payer) {}
    Inside inside;
    Bill bill;
    CaptureRelaxed relaxed;
};

// False: the call failed. After a lost context's error nothing more is done in that context.
bool good(Context& context, CUresult result) noexcept HPE_REQUIRES(context.lock) {
    if (lost_context(result)) context.closed = true;
    return result == CUDA_SUCCESS;
}

// Records the reference's event in a stream of libhpe's own, and polls until it completes. If something keeps the
// device from completing it at once there is no reference. The context is current.
bool measure(Context& context, Reference& reference) noexcept HPE_REQUIRES(context.lock) {
    constexpr std::uint64_t patience = 1'000'000, close = 20'000;
    constexpr int tries = 3;
    if (!good(context, make_stream(context.own)) || !good(context, make_event(reference.event, CU_EVENT_DEFAULT)))
        return false;
    // The event completes between two readings of the clock: the closer they are, the smaller is the error.
    for (int i = 0; i < tries; ++i) {
        const auto before = ticks::nanoseconds();
        if (!good(context, driver.cuEventRecord(reference.event, context.own))) return false;
        auto after = before;
        for (;;) {
            const auto said = driver.cuEventQuery(reference.event);
            after = ticks::nanoseconds();
            if (said == CUDA_SUCCESS) break;
            if (said != CUDA_ERROR_NOT_READY) return good(context, said);
            if (after - before > patience) return false;
            if (after - before > patience / 20) sched_yield();
        }
        reference.host = before + (after - before) / 2;
        if (after - before < close) break;
    }
    return true;
}

// The reference to measure from, or nullptr. The context is current.
Reference* reference_of(Context& context, std::uint64_t now) noexcept HPE_REQUIRES(context.lock) {
    auto& newest = context.references[context.newest];
    if (now < context.next_reference) return newest.host != 0 ? &newest : nullptr;
    const auto other = newest.host == 0 ? context.newest : 1 - context.newest;
    auto& fresh = context.references[other];
    if (fresh.used != 0) return newest.host != 0 ? &newest : nullptr;
    fresh.host = 0;
    if (!measure(context, fresh)) {
        fresh.host = 0;
        context.next_reference = now + kReferenceLife / 1000;
        return newest.host != 0 ? &newest : nullptr;
    }
    context.newest = other;
    context.next_reference = now + kReferenceLife;
    return &fresh;
}

// --- pairs -----------------------------------------------------------------------------------------------------------

// A copy of the kernel's name that is never freed: the driver's name is freed with the module.
const char* name_of(CUfunction function) noexcept try {
    constexpr std::size_t most = 4096;
    constexpr const char* unknown = "kernel";
    // Since CUDA 12.3. A launch takes the one or the other.
    static const auto of_function =
        reinterpret_cast<decltype(&::cuFuncGetName)>(real_dlsym(libcuda(), "cuFuncGetName"));
    static const auto of_kernel =
        reinterpret_cast<decltype(&::cuKernelGetName)>(real_dlsym(libcuda(), "cuKernelGetName"));
    const char* text = nullptr;
    if (function == nullptr) return "graph";
    if ((of_function == nullptr || of_function(&text, function) != CUDA_SUCCESS) &&
        (of_kernel == nullptr || of_kernel(&text, reinterpret_cast<CUkernel>(function)) != CUDA_SUCCESS)) {
        return unknown;
    }
    if (text == nullptr) return unknown;
    static constinit Mutex mutex;
    static NeverDestroyed<std::set<std::string, std::less<>>> kept;
    const Locked lock(mutex);
    auto& names = *kept;
    if (const auto known = names.find(text); known != names.end()) return known->c_str();
    return names.size() < most ? names.emplace(text).first->c_str() : unknown;
} catch (const std::bad_alloc&) {
    return "kernel";
}

void give_back(Pair& pair) noexcept {
    --pair.reference->used;
    pair.reference = nullptr;
    pair.stage = Pair::Stage::Free;
}

void record(const Context& context, const Pair& pair, float from_reference, float length) noexcept {
    const auto nanoseconds = [](float milliseconds) { return static_cast<std::int64_t>(milliseconds * 1e6); };
    const auto now = ticks::nanoseconds();
    const auto took = static_cast<std::uint64_t>(std::max<std::int64_t>(nanoseconds(length), 0));
    const auto mapped = static_cast<std::int64_t>(pair.reference->host) + nanoseconds(from_reference);
    // Clamped to the launch and to now: the clocks' error could put it outside.
    const auto begin =
        std::min(now, static_cast<std::uint64_t>(std::max(mapped, static_cast<std::int64_t>(pair.issued))));
    trace::add({.begin = begin,
                .end = std::min(begin + took, now),
                .name = pair.name,
                .place = reinterpret_cast<std::uintptr_t>(contexts.context_of(context)),
                .stream = pair.stream,
                .number = pair.thread,
                .kind = trace::Kind::Kernel});
}

// Asks every running pair. The context is current.
void collect_from(Context& context) noexcept HPE_REQUIRES(context.lock) {
    for (unsigned i = 0; i < context.made && !context.closed; ++i) {
        Pair& pair = (*context.pairs)[i];
        if (pair.stage != Pair::Stage::Running) continue;
        auto said = driver.cuEventQuery(pair.end);
        if (said == CUDA_ERROR_NOT_READY) continue;
        float from_reference = 0, length = 0;
        if (said == CUDA_SUCCESS) said = driver.cuEventElapsedTime(&from_reference, pair.reference->event, pair.begin);
        if (said == CUDA_SUCCESS) said = driver.cuEventElapsedTime(&length, pair.begin, pair.end);
        if (good(context, said)) {
            record(context, pair, from_reference, length);
        } else {
            in_vain.fetch_add(1, std::memory_order_relaxed);
        }
        give_back(pair);
        context.running.fetch_sub(1, std::memory_order_relaxed);
    }
}

// The same, whatever context is current.
void collect_all() noexcept {
    for (auto& context : contexts) {
        if (context.running.load(std::memory_order_relaxed) == 0) continue;
        if (!context.lock.try_lock()) continue;
        const Locked lock(context.lock, std::adopt_lock);
        if (context.closed) continue;
        const ContextScope scope(contexts.context_of(context));
        if (good(context, scope.result())) collect_from(context);
    }
}

// A free pair, or nullptr. The context is current.
Pair* take(Context& context) noexcept HPE_REQUIRES(context.lock) {
    if (context.pairs == nullptr) context.pairs = new (std::nothrow) Pairs{};
    if (context.pairs == nullptr) return nullptr;
    auto& pairs = *context.pairs;
    const auto free = [&]() -> Pair* {
        context.lock.assume_held();
        const auto end = pairs.begin() + context.made;
        const auto found = std::find_if(pairs.begin(), end, [](const Pair& p) { return p.stage == Pair::Stage::Free; });
        return found != end ? &*found : nullptr;
    };
    if (Pair* pair = free()) return pair;
    if (context.made < pairs.size()) {
        Pair& pair = pairs[context.made];
        if (!good(context, make_event(pair.begin, CU_EVENT_DEFAULT)) ||
            !good(context, make_event(pair.end, CU_EVENT_DEFAULT)))
            return nullptr;
        ++context.made;
        return &pair;
    }
    collect_from(context);
    return free();
}

void at_exit() noexcept {
    // In a callback the driver must not be called; and it may be holding a lock that this very call interrupted.
    if (process::active.load(std::memory_order_relaxed) && trace::on() && this_thread.in_callback == 0 &&
        this_thread.inside == 0 && this_thread.traced == 0 && !in_flight.capturing_anywhere()) {
        const Paid paid;
        collect_all();
    }
    over.store(true, std::memory_order_relaxed);
}

}  // namespace

void Launch::begin(CUstream stream, Flavour flavour, CUfunction function, std::uint64_t now) noexcept {
    // While any stream is captured some calls are errors, and this stream may be the one.
    if (over.load(std::memory_order_relaxed) || this_thread.in_callback != 0 || in_flight.capturing_anywhere()) return;
    open_account(now);
    const Paid paid(By::HostAndDevice);
    stream = named(stream, flavour);
    const auto handle = context_if_current(stream);
    context_ = contexts.of(handle);
    if (context_ == nullptr) return;
    // Registered when a context exists already, so that it runs before the driver's own exit handlers.
    [[maybe_unused]] static const int registered = std::atexit(at_exit);
    const char* const name = name_of(function);
    CUevent first = nullptr;
    {
        const Locked lock(context_->lock);
        if (context_->closed || contexts.context_of(*context_) != handle) return;  // it ends, or has ended meanwhile
        auto* const reference = reference_of(*context_, ticks::nanoseconds());
        pair_ = reference != nullptr ? take(*context_) : nullptr;
        if (pair_ == nullptr) return;
        const bool own = stream == CU_STREAM_PER_THREAD;
        pair_->stage = Pair::Stage::Issuing;
        pair_->reference = reference;
        ++reference->used;
        pair_->stream = own || stream == CU_STREAM_LEGACY ? kDefaultStream : reinterpret_cast<std::uintptr_t>(stream);
        pair_->thread = own ? static_cast<std::uint32_t>(syscall(SYS_gettid)) : 0;
        pair_->name = name;
        first = pair_->begin;
        end_ = pair_->end;
        ended_ = context_->ended;
    }
    stream_ = stream;
    // Outside the lock: a full stream keeps its callers waiting.
    const auto recorded = driver.cuEventRecord(first, stream_);
    issued_ = ticks::nanoseconds();
    if (recorded == CUDA_SUCCESS) return;
    const Locked lock(context_->lock);
    if (context_->ended == ended_) {
        good(*context_, recorded);
        give_back(*pair_);
    }
    pair_ = nullptr;
}

void Launch::end(CUresult result) noexcept {
    const Paid paid;
    if (result == CUDA_SUCCESS) result = driver.cuEventRecord(end_, stream_);
    const Locked lock(context_->lock);
    if (context_->ended != ended_) return;
    if (good(*context_, result)) {
        pair_->issued = issued_;
        pair_->stage = Pair::Stage::Running;
        context_->running.fetch_add(1, std::memory_order_relaxed);
    } else {
        give_back(*pair_);
        in_vain.fetch_add(1, std::memory_order_relaxed);
    }
}

void collect() noexcept {
    if (over.load(std::memory_order_relaxed) || this_thread.in_callback != 0 || in_flight.capturing_anywhere()) return;
    const bool some = std::any_of(contexts.begin(), contexts.end(), [](const Context& context) {
        return context.running.load(std::memory_order_relaxed) != 0;
    });
    if (!some || !affordable(ticks::now())) return;
    const Paid paid;
    collect_all();
}

void ending(CUcontext handle) noexcept {
    Context* const context = trace::on() ? contexts.known(handle) : nullptr;
    if (context == nullptr) return;
    collect();
    const Locked lock(context->lock);
    context->closed = true;
}

void stayed(CUcontext handle) noexcept {
    Context* const context = trace::on() ? contexts.known(handle) : nullptr;
    if (context == nullptr) return;
    const Locked lock(context->lock);
    context->closed = false;
}

void forget(CUcontext handle) noexcept {
    Context* const context = contexts.known(handle);
    if (context == nullptr) return;
    const Locked lock(context->lock);
    ++context->ended;
    context->own = nullptr;
    context->references = {};
    context->next_reference = 0;
    if (context->pairs != nullptr) *context->pairs = {};
    context->made = 0;
    in_vain.fetch_add(context->running.exchange(0), std::memory_order_relaxed);
    context->closed = false;
    places.give_back(handle);
}

std::uint64_t lost() noexcept { return in_vain.load(std::memory_order_relaxed); }

}  // namespace hpe::kernel_times
