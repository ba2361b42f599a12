// SPDX-License-Identifier: MIT
// Who may move, and the device: streams of the program, the engine's stream of flushes, the prefetcher's.
#include "tests/checker/model.h"

#include <algorithm>

#include "tests/checker/step.h"

namespace checker {

namespace {

using Moves = std::vector<Move<World>>;

void emit(const World& world, const char* words, int block, Moves& moves) {
    moves.push_back({world, words, block, Fair::Weak, Wrong::Nothing});
}
void wrong(Wrong kind, const char* words, int block, Moves& moves) {
    moves.push_back({{}, words, block, Fair::Weak, kind});
}

void stream_step(const Scenario& scenario, World world, unsigned stream, Moves& moves) {
    const auto item = world.queues[stream][0];
    if (world.queued[stream] == 0) return;
    if (item.what == kWaitItem) {
        if (item.after != 0) return;
        pop(world, stream);
        return emit(world, "has waited for flushes", -1, moves);
    }
    const auto& kernel = statement_of(scenario, item);
    if (kernel.what == Do::Call || (kernel.flag != 0 && (world.raised & kernel.flag) == 0)) return;
    const auto& from = world.blocks[kernel.block].device;
    for (unsigned i = 0; i < 2; ++i) {
        if ((kernel.expected[i] >> from[i] & 1) == 0) {
            return wrong(Wrong::Data, "reads what it should not", kernel.block, moves);
        }
    }
    if (kernel.writes) world.blocks[kernel.to_block].device[kernel.to_byte] = kernel.value;
    pop(world, stream);
    emit(world, "does its work", kernel.writes ? kernel.to_block : kernel.block, moves);
}

void flush_step(World world, Moves& moves) {
    if (world.flushing == 0) return;
    const auto flush = world.flushes[0];
    if ((flush.bytes & flush.gone) != 0)
        return wrong(Wrong::Memory, "land in memory that is freed", flush.block, moves);
    auto& block = world.blocks[flush.block];
    for (unsigned i = 0; i < 2; ++i) {
        if ((flush.bytes >> i & 1) != 0) block.device[i] = block.view[i];
    }
    for (unsigned i = 1; i < kMostFlushes; ++i) world.flushes[i - 1] = world.flushes[i];
    world.flushes[kMostFlushes - 1] = {};
    --world.flushing;
    for (auto& queue : world.queues) {
        for (auto& item : queue) {
            if (item.after != 0) --item.after;
        }
    }
    emit(world, "land", flush.block, moves);
}

void prefetch_step(const World& world, Moves& moves) {
    for (unsigned i = 0; i < kBlocks; ++i) {
        if (world.blocks[i].prefetch != Prefetch::Asked) continue;
        const auto about = static_cast<int>(i);
        if (world.blocks[i].prefetch_old == 2) {
            wrong(Wrong::Memory, "arrives in memory that is freed", about, moves);
            continue;
        }
        World next = world;
        next.blocks[i].view = next.blocks[i].device;
        next.blocks[i].prefetch = Prefetch::Arrived;
        emit(next, "has brought", about, moves);
    }
}

// The MPI, or another process that it has given the memory to.
void mpi_step(const Scenario& scenario, World world, Moves& moves) {
    if (world.message == 0 || world.arrived != 0) return;
    const auto number = world.message - 1u;
    const auto& message = statement_of(scenario, number / 16, number % 16);
    world.blocks[message.to_block].device[message.to_byte] = message.value;
    world.arrived = 1;
    emit(world, "writes what has come", message.to_block, moves);
}

// Of blocks that nobody has locked: what stands beside their state.
bool marks_stand(const World& world) {
    return std::all_of(world.blocks.begin(), world.blocks.end(), [](const BlockModel& block) {
        return block.owner != 0 ||
               ((block.loan == Loan::None || may_stand(hpe::Mark::Borrowed, block.state)) &&
                (block.prefetch == Prefetch::None || may_stand(hpe::Mark::PrefetchRequested, block.state)));
    });
}

}  // namespace

void pop(World& world, unsigned stream) {
    auto& queue = world.queues[stream];
    for (unsigned i = 1; i < kLongestQueue; ++i) queue[i - 1] = queue[i];
    queue[kLongestQueue - 1] = {};
    --world.queued[stream];
    for (auto& thread : world.threads) {
        if (thread.ahead[stream] != 0) --thread.ahead[stream];
    }
}

void Step::run() {
    switch (t_.at) {
        case At::Begin:
            switch (st_.what) {
                case Do::End: return a_ >= kThreads ? call_returns() : void();
                case Do::Read:
                case Do::Write:
                case Do::Straddle: return access();
                case Do::Launch:
                case Do::Copy:
                case Do::Free:
                case Do::FreePart:
                case Do::EndContext: return launch_begin();
                case Do::Call: return without(Mend::CallInGate) ? push() : launch_begin();
                case Do::Sync:
                    for (unsigned i = 0; i < kStreams; ++i) {
                        if (st_.stream == i || st_.stream == kStreams) t_.ahead[i] = s_.queued[i];
                    }
                    return go(At::SyncWait, "waits for the device");
                case Do::Allocate: return allocate();
                case Do::Lend: t_.ahead = s_.queued; return go(At::LendWait, "has a message to receive", st_.to_block);
                case Do::Received: return received();
                case Do::Raise: join(s_.raised, st_.flag); return finish("raises a flag");
                case Do::Await: return (s_.raised & st_.flag) != 0 ? finish("sees a flag") : void();
                case Do::Again:
                    if ((s_.raised & st_.flag) == 0) t_.pc = static_cast<Byte>(st_.value - 1);
                    return finish("goes on");
            }
            return;
        case At::CallBegins: return call_begins();
        case At::FindAgain: return find_again();
        case At::Look: return look();
        case At::Wait:
            if (!came_that_far()) return;
            t_.back = At::Entered;
            return fault_try();
        case At::WaitInGate: return wait_in_gate();
        case At::Lock: return lock();
        case At::AskLent: return ask_lent();
        case At::MapLate: map(); return lock();
        case At::Decide: return decide("has ended a loan");
        case At::Bring: return bring();
        case At::Open: return open("opens the block");
        case At::Ahead:
            block(t_.k).prefetch = Prefetch::Asked;
            block(t_.k).owner = 0;
            return served("asks for the next block, after");
        case At::EvictLock: return evict_lock();
        case At::EvictFlush: return evict_flush();
        case At::BorrowLock: return borrow_lock();
        case At::BorrowJudge: return borrow_judge();
        case At::BorrowTwin: return borrow_twin();
        case At::LoanClose: return loan_close();
        case At::LoanDrain: return loan_drain();
        case At::Loans:
        case At::LoansNext: return loans();
        case At::Settle: return settle_begin();
        case At::SettleDrain: return settle_drain();
        case At::LaunchLook: return launch_look();
        case At::LaunchTry: return launch_try();
        case At::LaunchAsleep:
        case At::FaultAsleep:
        case At::Entered:
        case At::Acquire: return;  // asleep; passed without a stop
        case At::FaultTry: return fault_try();
        case At::FaultSlots: return fault_slots();
        case At::FaultRest: return go(At::FaultTry, "tries again");
        case At::Apply: return takes(s_.apply_mutex) ? go(At::ApplyLock, "holds the mutex of calls") : void();
        case At::ApplyLock: return apply_lock();
        case At::ApplyClose: return apply_close();
        case At::ApplyAwait: return apply_await();
        case At::ApplyUnlock: return apply_unlock();
        case At::MakeWait: return make_wait();
        case At::FullStream: return full_stream("makes its stream wait for flushes after all");
        case At::Push: return push();
        case At::Count: return count();
        case At::FreeBegin: return free_drain();
        case At::FreeLock: return free_lock();
        case At::FreeLoans: return free_loans();
        case At::FreeTrue: return free_true();
        case At::PartLock: return part_lock();
        case At::PartDrain: return part_drain();
        case At::PartTrue: return part_true();
        case At::LendWait: return lend_wait();
        case At::LendLook: return lend_look();
        case At::ReceivedWait: return received_wait();
        case At::ReceivedEnd: return received_end();
        case At::SyncWait: return sync_wait();
        case At::AcquireIn: return acquire_in();
        case At::AcquireBlocks: return acquire_blocks();
        case At::CallSettles: return call_settles();
        case At::CallEnds: return call_ends();
    }
}

// The true allocation, and track().
void Step::allocate() {
    const auto object = object_of(st_.block);
    if (st_.writes) {
        join(block(st_.block).allocated, static_cast<Byte>(1u << st_.byte));
        return finish("allocates beside another allocation", st_.block);
    }
    join(s_.owned, object);
    join(s_.live, object);
    leave(s_.fresh, object);
    if (s_.queued == decltype(s_.queued){} || without(Mend::BirthAsksDevice)) join(s_.fresh, object);
    finish("allocates at the same address");
}

World Model::initial() const {
    for (const auto& program : scenario_.threads) {
        if (program.size() > 16) throw std::length_error("more statements than an Item tells apart");
    }
    World world;
    world.failures = scenario_.failures;
    if (scenario_.one_object) world.live = world.owned = 1;
    for (unsigned call = kThreads; call < kPrograms; ++call) world.threads[call].at = At::CallBegins;
    return world;
}

void Model::step(const World& world, unsigned actor, Moves& moves) const {
    if (!marks_stand(world))
        return wrong(Wrong::Marks, "moves, and a block has a mark that its state excludes", -1, moves);
    if (actor < kPrograms) return Step(scenario_, table_, without_, world, actor, moves).run();
    if (actor == kFlushes) return flush_step(world, moves);
    if (actor == kPrefetcher) return prefetch_step(world, moves);
    if (actor == kMpi) return mpi_step(scenario_, world, moves);
    stream_step(scenario_, world, actor - kFirstStream, moves);
}

bool Model::over(const World& world, unsigned program) const {
    const auto& thread = world.threads[program];
    if (program >= kThreads) return scenario_.calls[program - kThreads].empty() || thread.pc == kOver;
    return thread.at == At::Begin && thread.pc == scenario_.threads[program].size();
}

bool Model::finished(const World& world) const {
    for (unsigned program = 0; program < kPrograms; ++program) {
        if (!over(world, program)) return false;
    }
    return world.queued == decltype(world.queued){} && world.flushing == 0;
}

bool Model::waits(const World& world) const {
    for (unsigned program = 0; program < kPrograms; ++program) {
        if ((scenario_.must_end >> program & 1) != 0 && !over(world, program)) return true;
    }
    return false;
}

const char* Model::who(unsigned actor) {
    constexpr const char* names[kActors] = {"thread A",          "thread B",       "thread C", "thread D",
                                            "the host function", "the other one",  "stream 0", "stream 1",
                                            "flushes",           "the prefetcher", "the MPI"};
    return names[actor];
}

}  // namespace checker
