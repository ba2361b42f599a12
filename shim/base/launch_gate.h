// SPDX-License-Identifier: MIT
// The launch gate, a lock with two groups: any number of launches may be inside, or any number of faults, never both
// (room synchronization: Blelloch, Cheng, Gibbons, "Room synchronizations", SPAA 2001).
//
// Between the release of all blocks and the enqueueing of a kernel no block may become valid on the host: the host
// would keep a copy that the kernel makes old. Launches do not disturb each other, nor do faults.
//
// A launch pays one compare-and-swap, on a slot that it shares with no other thread at that moment, and a few plain
// stores there: threads that launch at once write to no cache line in common. Faults pay instead: they look at every
// slot that was ever used.
//
// A launch says in its slot in which stream it works, so that others can wait for the launches that concern them.
//
// A launch may stay inside for long: the driver keeps its caller until the device has come that far. The device may be
// waiting for another thread, and that thread for a launch of its own. So a fault that waits for launches to leave lets
// other launches in from time to time.
//
// Threads: any; async-signal-safe (a futex through std::atomic::wait). Not recursive: a signal handler that interrupts
// a thread inside the gate finds this_thread.in_gate, and must not enter. errno stays as it was.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "shim/base/flag.h"
#include "shim/base/thread.h"

namespace hpe {

class LaunchGate {
public:
    enum class Group : unsigned { Launches = 0, Faults = 1 };

    static constexpr unsigned kSlots = 32;
    static constexpr unsigned kNoSlot = kSlots;
    static_assert(kNoSlot == ThreadState::kNoSlot);

    // What a launch works in: a stream, by the caller's name for it.
    using Where = void*;
    static inline char nowhere = 0;
    static constexpr Where kNowhere = &nowhere;  // in nothing that others wait for

    // Returns the slot that the launch holds, exclusively, until it leaves with it; kNoSlot where all are taken.
    [[gnu::always_inline]] unsigned enter_launch(Where where = kNowhere) noexcept {
        const unsigned mine = slot_of_thread();
        auto& slot = slots_[mine];
        if (slot.take()) {
            if ((word_.load(std::memory_order_seq_cst) & (count_mask(Group::Faults) | waiting(Group::Faults))) == 0) {
                slot.says(where);
                return mine;
            }
            slot.taken.store(0, std::memory_order_release);
        }
        return enter_launch_slow(where);
    }
    [[gnu::always_inline]] void leave_launch(unsigned slot) noexcept {
        if (slot == kNoSlot) [[unlikely]] {
            return leave_launch_slow();
        }
        auto& mine = slots_[slot];
        mine.where.store(0, std::memory_order_relaxed);
        mine.left.store(mine.left.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        mine.taken.store(0, std::memory_order_release);
    }
    // Whether a launch that has entered has to look for stream reservations (reservations.h), which are made inside.
    bool reserved() const noexcept { return reservations_.load(std::memory_order_seq_cst) != 0; }
    void add_reservation() noexcept { reservations_.fetch_add(1, std::memory_order_seq_cst); }
    void drop_reservation() noexcept { reservations_.fetch_sub(1, std::memory_order_seq_cst); }

    // Of a launch that is inside.
    void works_in(unsigned slot, Where where) noexcept {
        if (slot != kNoSlot) slots_[slot].says(where);
    }
    // Waits until the launches that are inside now have left, except the one with slot `except` and those for which
    // `concerns(Where)` is false. A launch that enters meanwhile sees what the caller stored before. False: some have
    // not left after so many milliseconds.
    template <class Concerns>
    bool wait_for_launches(unsigned except, Concerns&& concerns, unsigned milliseconds) const noexcept {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        Patience patience(milliseconds);
        for (unsigned i = 0, used = slots_used(); i < used; ++i) {
            const Stay stay(slots_[i]);
            const auto concerned = [&] {
                const auto where = slots_[i].where.load(std::memory_order_acquire);
                return where == 0 || concerns(reinterpret_cast<Where>(where));  // it has just entered, or is leaving
            };
            while (i != except && !stay.over() && concerned()) {
                if (!patience.wait()) return false;
            }
        }
        while ((word_.load(std::memory_order_seq_cst) & count_mask(Group::Launches)) != 0) {
            if (!patience.wait()) return false;
        }
        return true;
    }

    void enter_fault() noexcept;
    // False: launches have not left after so many milliseconds.
    bool enter_fault(unsigned milliseconds) noexcept;
    void leave_fault() noexcept { leave(Group::Faults); }

    // Whether a launch may be inside. If not, a launch that enters later sees what the caller stored before.
    bool launches_inside() const noexcept {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if ((word_.load(std::memory_order_seq_cst) & count_mask(Group::Launches)) != 0) return true;
        return std::any_of(slots_.begin(), slots_.begin() + slots_used(),
                           [](const Slot& s) { return s.taken.load() != 0; });
    }

    // Slots from this one on have never been used. A launch raises the number before it takes a new slot, so a fault
    // that does not see the slot is seen by the launch. This saves faults, and whoever adds up a LaunchCount, a look at
    // up to 32 cache lines, which are cold after a call of the driver's.
    static unsigned slots_used() noexcept { return used_.load(std::memory_order_seq_cst); }

private:
    // Bits 0..14 launches inside, 15 launches wait; 16..30 faults inside, 31 faults wait.
    static constexpr std::uint32_t shift(Group g) { return g == Group::Launches ? 0 : 16; }
    static constexpr std::uint32_t one(Group g) { return 1u << shift(g); }
    static constexpr std::uint32_t count_mask(Group g) { return 0x7fffu << shift(g); }
    static constexpr std::uint32_t waiting(Group g) { return 0x8000u << shift(g); }
    static constexpr Group other(Group g) { return g == Group::Launches ? Group::Faults : Group::Launches; }

    class Patience;
    class Stay;

    // False: `stay` is the launch that has not left, if that is known.
    bool enter_fault(Patience& patience, Stay& stay) noexcept;
    // False: the patience (nullptr: endless) is at its end, and all waiting threads were told to look again.
    bool enter(Group group, Patience* patience) noexcept;
    // The last one inside wakes all waiting threads. Only the result of this subtraction tells whether it was the last:
    // a thread that enters right after it clears its group's waiting bit, though others of the group are asleep.
    void leave(Group group) noexcept {
        const auto before = word_.fetch_sub(one(group), std::memory_order_release);
        constexpr auto inside = count_mask(Group::Launches) | count_mask(Group::Faults);
        constexpr auto awaited = waiting(Group::Launches) | waiting(Group::Faults);
        if ((before & awaited) != 0 && (before & inside) == one(group)) wake();
    }
    void wake() noexcept;
    unsigned enter_launch_slow(Where where) noexcept;
    void leave_launch_slow() noexcept;

    // How long a thread waits for something that takes microseconds.
    class Patience {
    public:
        explicit Patience(unsigned milliseconds) noexcept : milliseconds_(milliseconds) {}
        bool wait() noexcept;  // a little; false: it is at its end

    private:
        const unsigned milliseconds_;
        unsigned spins_ = 0;
        std::uint64_t until_ = 0;  // nanoseconds of the monotonic clock
    };

    static unsigned slot_of_thread() noexcept {
        const unsigned mine = thread_slot;
        return mine != kNoSlot ? mine : choose_slot();
    }
    static unsigned choose_slot() noexcept;
    static void uses(unsigned slot) noexcept;

    HPE_HIDDEN static std::atomic<unsigned> used_;
    static inline thread_local constinit unsigned thread_slot __attribute__((tls_model("initial-exec"))) = kNoSlot;

    // A cache line of its own. Integers, whose atomic operations are always instructions: libstdc++'s functions for
    // bool and for pointers may be called instead, and then each store is a locked one.
    struct alignas(64) Slot {
        std::atomic<std::uint32_t> taken{0};   // 0 or 1
        std::atomic<std::uint32_t> left{0};    // launches that have left it
        std::atomic<std::uintptr_t> where{0};  // 0: not said yet by the launch that has taken the slot

        [[gnu::always_inline]] bool take() noexcept {
            std::uint32_t free = 0;
            return taken.compare_exchange_strong(free, 1, std::memory_order_seq_cst);
        }
        void says(Where stream) noexcept {
            where.store(reinterpret_cast<std::uintptr_t>(stream), std::memory_order_release);
        }
    };
    // The stay of the launch that is in a slot now, if there is one.
    class Stay {
    public:
        Stay() noexcept = default;  // not over, as far as is known
        explicit Stay(const Slot& slot) noexcept : slot_(&slot), left_(slot.left.load(std::memory_order_acquire)) {}
        bool over() const noexcept {
            if (slot_ == nullptr) return false;
            if (slot_->taken.load(std::memory_order_seq_cst) == 0) return true;
            return slot_->left.load(std::memory_order_acquire) != left_;  // another launch has the slot
        }

    private:
        const Slot* slot_ = nullptr;
        std::uint32_t left_ = 0;
    };
    std::atomic<std::uint32_t> word_{0};
    std::atomic<std::uint32_t> reservations_{0};  // beside what a launch looks at anyway
    std::atomic<std::uint32_t> generation_{0};  // moves when the gate empties while somebody waits, or gives up waiting
    std::array<Slot, kSlots> slots_;
};

// The calling thread knows its slot.
class LaunchInGate {
public:
    [[gnu::always_inline]] explicit LaunchInGate(LaunchGate& gate,
                                                 LaunchGate::Where where = LaunchGate::kNowhere) noexcept
        : gate_(gate) {
        enter(gate, where);
    }
    [[gnu::always_inline]] ~LaunchInGate() { leave(gate_); }
    LaunchInGate(const LaunchInGate&) = delete;
    LaunchInGate& operator=(const LaunchInGate&) = delete;

    // To wait outside. After enter() everything that has to be done inside the gate is done anew.
    [[gnu::always_inline]] static void leave(LaunchGate& gate) noexcept {
        const unsigned slot = this_thread.slot;
        this_thread.slot = LaunchGate::kNoSlot;
        gate.leave_launch(slot);
        this_thread.in_gate = false;
    }
    [[gnu::always_inline]] static void enter(LaunchGate& gate, LaunchGate::Where where) noexcept {
        this_thread.in_gate = true;
        this_thread.slot = gate.enter_launch(where);
    }

private:
    LaunchGate& gate_;
};

class FaultInGate {
public:
    explicit FaultInGate(LaunchGate& gate) noexcept : gate_(gate) {
        this_thread.in_gate = true;
        gate_.enter_fault();
    }
    // Waits so many milliseconds at most: see entered().
    FaultInGate(LaunchGate& gate, unsigned milliseconds) noexcept : gate_(gate) {
        this_thread.in_gate = true;
        entered_ = gate_.enter_fault(milliseconds);
    }
    ~FaultInGate() {
        if (entered_) gate_.leave_fault();
        this_thread.in_gate = false;
    }
    FaultInGate(const FaultInGate&) = delete;
    FaultInGate& operator=(const FaultInGate&) = delete;
    bool entered() const noexcept { return entered_; }

private:
    LaunchGate& gate_;
    bool entered_ = true;
};

// A count that launches increase without a locked instruction: each in the slot that it holds. Monotonic.
class LaunchCount {
public:
    void add(unsigned slot) noexcept {
        if (slot == LaunchGate::kNoSlot) {
            shared_.fetch_add(1, std::memory_order_release);
        } else {
            auto& own = own_[slot];
            own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        }
    }
    // All that was counted before the call, and perhaps some of what is counted during it.
    std::uint64_t sum() const noexcept {
        auto total = shared_.load(std::memory_order_acquire);
        for (unsigned i = 0, used = LaunchGate::slots_used(); i < used; ++i) {
            total += own_[i].load(std::memory_order_acquire);
        }
        return total;
    }

private:
    std::atomic<std::uint64_t> shared_{0};
    std::array<std::atomic<std::uint64_t>, LaunchGate::kSlots> own_{};
};

}  // namespace hpe
