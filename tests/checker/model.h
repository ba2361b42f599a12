// SPDX-License-Identifier: MIT
// What the checker explores: blocks, the launch gate, streams, flushes, loans, frees, in steps that other threads can
// come between. The states and events of blocks are those of the very table that the library uses.
//
// Each step stands for a piece of real code:
// - CPU accesses (step_access.cpp): coherence_faults.cpp, of serve_fault, serve, borrow, bring, evict, fetch_ahead;
//   coherence_waits.cpp, wait_in_order; rolling.cpp, dirtied, with room for one block
// - loans and flushes (step_loans.cpp): coherence_loans.cpp; settle_flushes; callbacks.cpp, InCallback
// - the gate (step_gate.cpp): launch_gate.h and launch_gate.cpp, of enter_launch, enter_fault, enter, leave
// - launches and copies (step_calls.cpp): doors/door.h, device_work; coherence_doors.cpp, apply and await_flushes;
//   Engine::make_wait
// - waits: doors/cuda_copy.h, after_wait; acquire
// - frees and ends of contexts: doors/, free_object and end_context_in_gate; coherence_frees.cpp, begin_free,
//   leave_region, close_gaps, drop_context, restore_context
// - objects that an MPI uses by itself (step_loans.cpp): copies/lent.cpp; serve(), of what is lent
// - the device (model.cpp): the program's streams, the engine's stream of flushes, the prefetcher's stream
// Where other threads cannot tell two steps from one they are one. Who changes one of these functions changes its step.
// Who mends an order of steps adds a Mend, the step that asks without(), and its row in scenarios.cpp: the checker must
// find the bug when the mend is taken out.
//
// Left out: memory orders (a step is seen by all at once); which slot of the gate a thread has (its own, always); the
// patience of a fault that sleeps in front of the gate; that leave_region ends the block's loan; reservations of
// streams; calls that the kernel answers (lease.h), signal handlers and threads inside driver calls, and so loans that
// a waiting thread meets; captures; peers; mappings that run out; objects that nobody touched; what a fault opens
// beside its own block. A fetch is one step, so is a kernel. Flushes read the view as late as they may. Counters are
// replaced by what is asked of them: a bit in the thread that compares. Time: a fault gives up waiting for launches
// once at any moment, and again only where a launch is kept by the device, since its patience grows; in the same way it
// waits for the device inside the gate.
//
// Values only. One thread. Errors: none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "protocols/state.h"
#include "protocols/transitions.h"
#include "tests/checker/explore.h"

namespace checker {

using Byte = std::uint8_t;

constexpr unsigned kThreads = 4, kCalls = 2, kPrograms = kThreads + kCalls;  // threads, then host functions
constexpr unsigned kStreams = 2, kBlocks = 2, kLongestQueue = 3, kMostFlushes = 3;
enum Actor : unsigned { kFirstStream = kPrograms, kFlushes = kFirstStream + kStreams, kPrefetcher, kMpi, kActors };

// A value of a byte of memory, and sets of values: bit v for value v.
constexpr Byte kHostGarbage = 6, kDeviceGarbage = 7, kAny = 0xff;

// One statement of a program. `block` and `byte` say where.
enum class Do : Byte {
    End,
    Read,        // by the CPU; one of `expected`
    Write,       // by the CPU: `value`
    Straddle,    // one store to the end of block 0 and the beginning of block 1
    Launch,      // into `stream`: waits for `flag` if there is one, checks block, expected[0] and [1], writes
    Copy,        // the same, but what it reads and writes is known
    Call,        // enqueues host function number `value` into `stream`
    Sync,        // waits for `stream`, or for all (kStreams)
    Free,        // the object of the block
    FreePart,    // the byte, an allocation beside another one of the block's
    Allocate,    // at the same address; `writes`: a part
    EndContext,  // that the object of the block belongs to, alone
    Lend,        // the object of to_block to the MPI, which writes value to to_byte at any time
    Received,    // the program is told that it has; where nothing was lent, the device copies it there now
    Raise,       // `flag`
    Await,       // `flag`
    Again,       // back to statement `value` until `flag` is raised
};
struct Statement {
    Do what = Do::End;
    Byte stream = 0, block = 0, byte = 0, value = 0;
    std::array<Byte, 2> expected{kAny, kAny};
    Byte flag = 0;
    Byte to_block = 0, to_byte = 0;
    bool writes = false;   // a kernel: value to to_block, to_byte
    bool refused = false;  // a launch: the driver refuses it
};

// What keeps the library right, each of which can be taken out.
enum class Mend : Byte {
    None,
    CloseBeforeFlush,
    WaitBeforeGate,
    PatienceInGate,
    LookAfterTaking,
    YieldInGate,
    BlockLaunchesAtLast,
    WaitAgain,
    CountInGate,
    SettleBeforeFetch,
    DrainBeforeSettled,
    StreamWaits,
    EveryStreamWaits,
    WaitUnlocked,
    WaitWithoutMutex,
    RollBack,
    PrefetchIsOld,
    FreeDrains,
    FreeDropsPrefetch,
    AskAlive,
    LookAgainAfterEnding,
    CallWaitsForEnd,
    EndFlushes,
    BirthAsksDevice,
    FreeEndsLoans,
    PartLeavesFirst,
    PartDrains,
    PartClosesGap,
    EvictClosesFirst,
    EvictAsksAlive,
    StraddledStay,
    AcquireAsksIdle,
    Borrow,
    ListBeforeIdle,
    FlushChanges,
    OpenOwnPart,
    CloseBorrowed,
    CopyKeepsLoan,
    DrainBeforeTwin,
    CallbackEndsLoans,
    CallbackBeginsFresh,
    CallbackSettles,
    WaitEndsLoans,
    CallInGate,
    BorrowLent,
    LendSeesUse,
    AskLentMapped,
    ReceivedIsNewest,
    LentIsWritten,
    AcquireSkipsLent
};
constexpr std::size_t kMends = static_cast<std::size_t>(Mend::AcquireSkipsLent);

struct Scenario {
    const char* name = "";
    std::array<std::vector<Statement>, kThreads> threads;
    std::array<std::vector<Statement>, kCalls> calls{};
    bool one_object = false;     // of both blocks; else each block is an object
    bool apart = false;          // a block's bytes are two allocations
    bool rolling = false;        // one Dirty block at most
    bool prefetch = false;       // a read asks for the other block
    bool context_stays = true;   // EndContext fails
    Byte queue = kLongestQueue;  // of a stream
    Byte failures = 0;           // flushes that may fail
    bool for_batch = true;       // also with the table of batch-update
    bool batch_only = false;
    Byte must_end = 0xff;  // a set of programs: the others may go on for ever
};

// Where a program is inside of a statement.
enum class At : Byte {
    Begin,
    CallBegins,
    // A CPU access.
    FindAgain,
    Look,
    Wait,
    Entered,
    WaitInGate,
    Lock,
    AskLent,
    MapLate,
    Decide,
    Bring,
    Open,
    Ahead,
    EvictLock,
    EvictFlush,
    BorrowLock,
    BorrowJudge,
    BorrowTwin,
    // Loans and flushes, called from elsewhere, which goes on at `back`; Loans at `outer`.
    LoanClose,
    LoanDrain,
    Loans,
    LoansNext,
    Settle,
    SettleDrain,
    // The gate. A fault goes on at `back`.
    LaunchLook,
    LaunchTry,
    LaunchAsleep,
    FaultTry,
    FaultAsleep,
    FaultSlots,
    FaultRest,
    // Inside it.
    Apply,
    ApplyLock,
    ApplyClose,
    ApplyAwait,
    ApplyUnlock,
    MakeWait,
    FullStream,
    Push,
    Count,
    FreeBegin,
    FreeLock,
    FreeLoans,
    FreeTrue,
    PartLock,
    PartDrain,
    PartTrue,
    // Lent objects.
    LendWait,
    LendLook,
    ReceivedWait,
    ReceivedEnd,
    // Waits of the program, and the end of a host function.
    SyncWait,
    Acquire,
    AcquireIn,
    AcquireBlocks,
    CallSettles,
    CallEnds
};

enum class Pages : Byte { Unmapped, Closed, Readable, Open };
enum class Loan : Byte { None, Plain, Twin, Idle };  // Plain: opened for reading; Idle: the device was, no twin
enum class Prefetch : Byte { None, Asked, Arrived };

struct Thread {
    Byte pc = 0;
    At at = At::Begin, back = At::Begin, outer = At::Begin;
    Byte k = 0;                          // a block
    Byte held = 0;                       // blocks that apply() has locked
    Byte flags = 0;                      // see step.h
    Byte borrows = 0;                    // inside the gate, since the object is lent
    std::array<Byte, kStreams> ahead{};  // of each stream's work: what is waited for
};
struct BlockModel {
    hpe::State state{};
    Byte owner = 0;                // of the lock: actor + 1
    std::array<Pages, 2> pages{};  // each byte has one of its own
    Byte allocated = 3;            // bytes, a bit each, as the table says (memory/allocations.h)
    Byte listed = 0;               // host_valid_blocks, host_valid_list
    Loan loan{};
    Prefetch prefetch{};
    Byte prefetch_old = 0;  // work came since it was asked for
    std::array<Byte, 2> twin{}, view{}, device{};
};
struct Item {
    Byte what = 0;   // 16 * program + statement; kWaitItem
    Byte after = 0;  // kWaitItem: so many flushes
};
constexpr Byte kWaitItem = 0xff;
struct Flush {
    Byte block = 0, bytes = 0;  // a bit each
    Byte gone = 0;              // bytes whose memory was freed meanwhile
};

struct World {
    std::array<Thread, kPrograms> threads{};
    std::array<BlockModel, kBlocks> blocks{};
    std::array<std::array<Item, kLongestQueue>, kStreams> queues{};
    std::array<Byte, kStreams> queued{};
    std::array<Flush, kMostFlushes> flushes{};
    Byte flushing = 0;  // how many of them
    // Sets of programs: in a slot of the gate, and inside as a launch; counted as a fault, and inside as one.
    Byte taken = 0, launches = 0, counted = 0, faults = 0;
    Byte launches_wait = 0, faults_wait = 0;
    Byte apply_mutex = 0, flushes_lock = 0;
    // Sets of objects: in the table; the program's; mapped; without data.
    Byte live = 3, owned = 3, mapped = 0, fresh = 0;
    Byte ending = 0, streams_wait = 0, raised = 0, failures = 0;
    Byte oldest = 0, oldest_gone = 0;  // of the Dirty blocks, for rolling: block + 1
    Byte lent = 0;                     // a set of objects
    Byte message = 0, arrived = 0;     // 1 + 16 * program + statement, of what the MPI has
};

class Model {
public:
    using State = World;
    Model(const Scenario& scenario, const hpe::TransitionTable& table, Mend without)
        : scenario_(scenario), table_(table), without_(without) {}
    World initial() const;
    static constexpr unsigned actors() { return kActors; }
    void step(const World& world, unsigned actor, std::vector<Move<World>>& moves) const;
    bool finished(const World& world) const;
    // Whether somebody who must end has not: then it must not go on like this for ever.
    bool waits(const World& world) const;
    static const char* who(unsigned actor);

private:
    bool over(const World& world, unsigned program) const;

    const Scenario& scenario_;
    const hpe::TransitionTable& table_;
    const Mend without_;
};

}  // namespace checker
