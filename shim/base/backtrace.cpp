// SPDX-License-Identifier: MIT
// Slots for copied stacks, the table of known stacks, and the thread that unwinds.
#include "shim/base/backtrace.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/modules.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"

// Of the loader: where the first thread's stack ends (proc(5), stat, startstack).
extern "C" [[gnu::weak]] void* __libc_stack_end;

namespace hpe::backtrace {

namespace {

constexpr std::size_t kPage = 4096;
// So many new stacks may come while the thread that unwinds waits for a processor. Memory is used as they come.
constexpr std::size_t kSlots = 1024;
constexpr std::size_t kBuckets = std::size_t{1} << 12;
constexpr std::size_t kEntries = std::size_t{1} << 14, kReturns = std::size_t{1} << 18;
constexpr unsigned kLongestChain = 64;
// A ticket is a number, or says which of the copied stacks it is.
constexpr Ticket kBySerial = Ticket{1} << 63;
constexpr std::size_t kSerials = std::size_t{1} << 18;

enum class Slot : unsigned char { Free, Filling, Full };

struct Copied {
    Registers registers;
    const char* what;
    Payload payload;
    std::uint64_t serial;
    std::size_t words;
    std::uint64_t stack[kStackBytes / sizeof(std::uint64_t)];
};

// A place in the stack, in words from the stack pointer on, and what it holds.
struct Return {
    std::uint64_t address;
    std::uint32_t word;
};

struct Known {
    std::uint64_t ip, sp, bp;
    const char* what;
    std::uint32_t number;
    std::uint32_t first, count;  // returns
    std::uint32_t next;          // in the bucket's chain; 0: the last
    bool by_bp;                  // the unwinding depends on it
};

struct Memory {
    std::array<std::atomic<Slot>, kSlots> states;
    std::array<Copied, kSlots> slots;
    std::array<std::atomic<std::uint32_t>, kBuckets> buckets;
    std::array<Known, kEntries> entries;  // the first one is not used
    std::array<Return, kReturns> returns;
    std::array<std::atomic<std::uint32_t>, kSerials> numbers;  // by serial
};

constinit std::atomic<Memory*> memory{nullptr};
constinit std::atomic<State> stage{State::NotStarted};
constinit std::atomic<std::uint32_t> filled{0};  // counts; the thread waits for a change
constinit std::atomic<std::uint64_t> serials{0};
constinit std::atomic<std::uint64_t> hits{0}, walks{0};
constinit Owner owner{};
// Guards all below, and who may unwind.
constinit std::atomic<bool> unwinding{false};
// Guards what the owner keeps, and which slots it has counted. Never held while the loader's lock is waited for.
constinit std::atomic<bool> counting{false};
constinit std::uint32_t used_entries = 1, used_returns = 0;
constinit std::uintptr_t end_of_first_stack = 0;

std::size_t bucket_of(std::uint64_t ip, std::uint64_t sp) noexcept {
    return static_cast<std::size_t>(((ip * 0x9E3779B97F4A7C15ull) ^ (sp * 0xC2B2AE3D27D4EB4Full)) >> 52) % kBuckets;
}

// Words from a stack pointer on: of a copy, or of a thread's own stack, where only the page of the stack pointer is
// certain. The stack of a coroutine may end behind that page, though an earlier one went on.
class Stack {
public:
    explicit Stack(const Copied& copy) noexcept : words_(copy.stack), there_(copy.words), most_(copy.words) {}
    explicit Stack(std::uintptr_t sp) noexcept
        : words_(reinterpret_cast<const volatile std::uint64_t*>(sp)), there_((kPage - sp % kPage) / sizeof *words_) {}

    bool holds(std::size_t word, std::uint64_t value) noexcept {
        while (word >= there_) {
            if (there_ >= most_ || !kernel::can_be_read(reinterpret_cast<std::uintptr_t>(words_ + there_))) {
                most_ = there_;
                return false;
            }
            there_ += kPage / sizeof *words_;
        }
        return words_[word] == value;
    }

private:
    const volatile std::uint64_t* const words_;
    std::size_t there_, most_ = kStackBytes / sizeof(std::uint64_t);
};

bool matches(const Memory& all, const Known& known, const Registers& registers, const char* what,
             Stack& stack) noexcept {
    if (known.ip != registers.ip() || known.sp != registers.sp() || known.what != what) return false;
    if (known.by_bp && known.bp != registers.value[Registers::kBp]) return false;
    const auto* entry = &all.returns[known.first];
    for (std::uint32_t i = 0; i < known.count; ++i, ++entry) {
        if (!stack.holds(entry->word, entry->address)) return false;
    }
    return true;
}

// The number of a stack that is known; 0: it is not.
std::uint32_t find(const Memory& all, const Registers& registers, const char* what, Stack stack) noexcept {
    auto at = all.buckets[bucket_of(registers.ip(), registers.sp())].load(std::memory_order_acquire);
    for (unsigned i = 0; at != 0 && i < kLongestChain; ++i) {
        const auto& known = all.entries[at];
        if (matches(all, known, registers, what, stack)) return known.number;
        at = known.next;
    }
    return 0;
}

// --- copying -----------------------------------------------------------------------------------------------------

// The end of the calling thread's stack, or of what may be copied from there on. A thread's control block lies at the
// upper end of its stack.
std::size_t words_above(std::uintptr_t sp) noexcept {
    auto end = sp + kStackBytes;
    const auto control = static_cast<std::uintptr_t>(pthread_self());
    if (control > sp) end = std::min(end, control);
    if (end_of_first_stack > sp) end = std::min(end, end_of_first_stack);
    if (!kernel::can_be_read(sp / kPage * kPage)) return 0;
    for (auto page = sp / kPage * kPage + kPage; page < end; page += kPage) {
        if (!kernel::can_be_read(page)) end = page;
    }
    return (end - sp) / sizeof(std::uint64_t);
}

// Not memcpy: that is a door of ours, and sanitizers and profilers have their own.
void copy_words(std::uint64_t* to, std::uintptr_t from, std::size_t words) noexcept {
    asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

// The first one, so that few are ever used; kSlots: none.
std::size_t free_slot(Memory& all) noexcept {
    for (std::size_t i = 0; i < kSlots; ++i) {
        auto is = all.states[i].load(std::memory_order_relaxed);
        if (is == Slot::Free && all.states[i].compare_exchange_strong(is, Slot::Filling, std::memory_order_acquire)) {
            return i;
        }
    }
    return kSlots;
}

// --- unwinding ---------------------------------------------------------------------------------------------------

// With patience, since who ends the process may have what our thread waits for: inside dl_iterate_phdr the loader's
// lock, in a signal handler malloc's. finish() keeps both flags for ever.
bool enter(std::atomic<bool>& flag, std::chrono::milliseconds patience) noexcept {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (flag.exchange(true, std::memory_order_acquire)) {
        if (std::chrono::steady_clock::now() >= end) return false;
        nap(std::chrono::microseconds(50));
    }
    return true;
}
void leave(std::atomic<bool>& flag) noexcept { flag.store(false, std::memory_order_release); }

void remember(Memory& all, const Copied& copy, const unwinder::Walk& walk, std::uint32_t number, bool by_bp) noexcept {
    if (used_entries == kEntries || used_returns + walk.count > kReturns) return;
    auto& known = all.entries[used_entries];
    known = {copy.registers.ip(),
             copy.registers.sp(),
             copy.registers.value[Registers::kBp],
             copy.what,
             number,
             used_returns,
             0,
             0,
             by_bp};
    for (std::size_t i = 1; i < walk.count; ++i) {
        // A caller's frame begins where the return address ends (System V ABI, AMD64 supplement, 3.2.2). Not so
        // behind a signal handler: such a stack is unwound each time.
        const auto offset = walk.frames[i].sp - 8 - copy.registers.sp();
        const auto word = offset / 8;
        if (offset % 8 != 0 || word >= copy.words || copy.stack[word] != walk.frames[i].ip) return;
        all.returns[used_returns + known.count++] = {copy.stack[word], static_cast<std::uint32_t>(word)};
    }
    // One frame alone could be any stack.
    if (known.count == 0) return;
    used_returns += known.count;
    auto& bucket = all.buckets[bucket_of(known.ip, known.sp)];
    known.next = bucket.load(std::memory_order_relaxed);
    bucket.store(used_entries++, std::memory_order_release);
}

bool same(const unwinder::Walk& a, const unwinder::Walk& b) noexcept {
    return a.count == b.count &&
           std::equal(a.frames.begin(), a.frames.begin() + static_cast<long>(a.count), b.frames.begin(),
                      [](const auto& x, const auto& y) { return x.ip == y.ip; });
}

std::uintptr_t own_module() noexcept {
    static const auto number = modules::find(reinterpret_cast<std::uintptr_t>(&own_module));
    return number;
}

void unwind(Memory& all, std::size_t slot) noexcept {
    const auto& copy = all.slots[slot];
    if (!modules::refresh()) {
        // Other code is where unloaded code was. The entries stay as they are: a thread may be looking at one.
        for (auto& bucket : all.buckets) bucket.store(0, std::memory_order_relaxed);
        unwinder::forget();
    }
    auto number = find(all, copy.registers, copy.what, Stack(copy));
    const bool known = number != 0;
    unwinder::Walk walk;
    std::array<Place, unwinder::kMostFrames> places;
    std::size_t count = 0;
    bool by_bp = false;
    if (!known) {
        const auto stack = std::as_bytes(std::span(copy.stack, copy.words));
        unwinder::walk(copy.registers, stack, walk);
        walks.fetch_add(1, std::memory_order_relaxed);
        for (std::size_t i = 0; i < walk.count; ++i) {
            const auto& frame = walk.frames[i];
            const auto call = frame.interrupted ? frame.ip : frame.ip - 1;
            const auto module = modules::find(call);
            // The doors of a call are no part of the program.
            if (count == 0 && module == own_module()) continue;
            places[count++] = {module, module != modules::kNone ? call - modules::at(module).bias : call};
        }
        // A register that most code uses for anything matters only where it changes the answer.
        auto other = copy.registers;
        other.value[Registers::kBp] = 0;
        unwinder::Walk without;
        unwinder::walk(other, stack, without);
        by_bp = !same(walk, without);
    }
    // Only finish() keeps this thread waiting here, and then for ever.
    while (!enter(counting, std::chrono::seconds(1))) {
    }
    if (!known) number = owner.number(copy.what, {places.data(), count}, walk.cut);
    owner.add(number, copy.payload);
    if (copy.serial < kSerials) all.numbers[copy.serial].store(number, std::memory_order_relaxed);
    if (!known) remember(all, copy, walk, number, by_bp);
    all.states[slot].store(Slot::Free, std::memory_order_release);
    leave(counting);
}

void unwind_all(Memory& all) noexcept {
    for (std::size_t i = 0; i < kSlots; ++i) {
        if (all.states[i].load(std::memory_order_acquire) == Slot::Full) unwind(all, i);
    }
}

void serve(void*) noexcept {
    name_this_thread("hpe-stacks");
    auto opening = State::Opening;
    const bool there = unwinder::open();
    if (!stage.compare_exchange_strong(opening, there ? State::Ready : State::Missing)) return;
    if (!there) return;
    Memory& all = *memory.load(std::memory_order_acquire);
    for (;;) {
        const auto seen = filled.load(std::memory_order_acquire);
        if (!unwinding.exchange(true, std::memory_order_acquire)) {
            unwind_all(all);
            leave(unwinding);
        }
        wait_while(filled, seen);
    }
}

}  // namespace

bool start(const Owner& with) noexcept {
    auto none = State::NotStarted;
    if (!stage.compare_exchange_strong(none, State::Opening)) return true;
    void* const place =
        kernel::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (place == MAP_FAILED) {
        stage.store(State::Missing);
        return false;
    }
    if (&__libc_stack_end != nullptr) end_of_first_stack = reinterpret_cast<std::uintptr_t>(__libc_stack_end);
    owner = with;
    memory.store(static_cast<Memory*>(place), std::memory_order_release);  // zeros are empty slots
    if (start_thread(serve)) return true;
    stage.store(State::Missing);
    return false;
}

State state() noexcept { return stage.load(std::memory_order_acquire); }

Ticket take(const Registers& registers, const char* what, const Payload& payload) noexcept {
    const auto now = stage.load(std::memory_order_acquire);
    Memory* const all = memory.load(std::memory_order_acquire);
    if (all == nullptr || (now != State::Ready && now != State::Opening)) return kNotTaken;
    const auto number = find(*all, registers, what, Stack(registers.sp()));
    if (number != 0) {
        hits.fetch_add(1, std::memory_order_relaxed);
        owner.add(number, payload);
        return number;
    }
    const auto which = free_slot(*all);
    if (which == kSlots) return kNotTaken;
    auto& slot = all->slots[which];
    slot.registers = registers;
    slot.what = what;
    slot.payload = payload;
    slot.serial = serials.fetch_add(1, std::memory_order_relaxed);
    const auto ticket = kBySerial | slot.serial;
    slot.words = words_above(registers.sp());
    copy_words(slot.stack, registers.sp(), slot.words);
    all->states[which].store(Slot::Full, std::memory_order_release);
    const ErrnoKept kept;
    filled.fetch_add(1, std::memory_order_seq_cst);
    filled.notify_one();
    return ticket;
}

std::uint32_t number_of(Ticket ticket) noexcept {
    if ((ticket & kBySerial) == 0) return static_cast<std::uint32_t>(ticket);
    const Memory* const all = memory.load(std::memory_order_acquire);
    const auto serial = ticket & ~kBySerial;
    return all != nullptr && serial < kSerials ? all->numbers[serial].load(std::memory_order_relaxed) : 0;
}

Registers registers_of(const ucontext_t& context) noexcept {
    const auto& from = context.uc_mcontext.gregs;
    constexpr int order[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                             REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    Registers to;
    for (std::size_t i = 0; i < to.value.size(); ++i) to.value[i] = static_cast<std::uint64_t>(from[order[i]]);
    return to;
}

void finish() noexcept {
    auto opening = State::Opening;
    // A short program may come here before the thread has opened the library. Not waited for: it may wait for the
    // loader's lock, which the calling thread may hold.
    if (state() == State::Opening) {
        const bool there = unwinder::open();
        stage.compare_exchange_strong(opening, there ? State::Ready : State::Missing);
    }
    Memory* const all = memory.load(std::memory_order_acquire);
    if (all == nullptr || state() != State::Ready) return;
    if (enter(unwinding, std::chrono::seconds(1))) return unwind_all(*all);
    // The thread that unwinds is held up: what it has not counted yet has no stack.
    if (!enter(counting, std::chrono::seconds(1))) return;
    for (std::size_t i = 0; i < kSlots; ++i) {
        if (all->states[i].load(std::memory_order_acquire) == Slot::Full) owner.add(owner.none, all->slots[i].payload);
    }
}

void in_child() noexcept {
    if (state() == State::NotStarted) return;
    stage.store(State::Missing, std::memory_order_release);
    memory.store(nullptr, std::memory_order_release);
}

Quiet::Quiet() noexcept : is_(state() == State::Ready && enter(unwinding, std::chrono::milliseconds(200))) {}
Quiet::~Quiet() {
    if (is_) leave(unwinding);
}

Counts counts() noexcept { return {hits.load(std::memory_order_relaxed), walks.load(std::memory_order_relaxed)}; }

}  // namespace hpe::backtrace
