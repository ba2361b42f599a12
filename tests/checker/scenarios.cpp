// SPDX-License-Identifier: MIT
// The programs are free of races of their own: what a read may see is known.
#include "tests/checker/scenarios.h"

namespace checker {

namespace {

using Program = std::vector<Statement>;

constexpr Byte f0 = 1, f1 = 2, f2 = 4;  // flags
// As long as two threads keep step, each evicts what the other has opened and has not written yet: chance ends it, and
// not the library.
constexpr Byte kWhoKeepsStep = 0;
constexpr Byte just(int value) { return static_cast<Byte>(1 << value); }

constexpr Statement read(Byte block, Byte byte, int value) {
    return {.what = Do::Read, .block = block, .byte = byte, .expected = {just(value), kAny}};
}
constexpr Statement write(Byte block, Byte byte, Byte value) {
    return {.what = Do::Write, .block = block, .byte = byte, .value = value};
}
struct Where {
    Byte block, byte, value;
};
// A kernel that reads a block, and one that writes a byte. `expected`: sets.
constexpr Statement reads(Byte stream, Byte block, Byte first, Byte second, Byte flag = 0) {
    return {.what = Do::Launch, .stream = stream, .block = block, .expected = {first, second}, .flag = flag};
}
constexpr Statement writes(Byte stream, Where to, Byte flag = 0) {
    return {.what = Do::Launch,
            .stream = stream,
            .value = to.value,
            .flag = flag,
            .to_block = to.block,
            .to_byte = to.byte,
            .writes = true};
}
// Of one that reads: where it writes, too.
constexpr Statement and_writes(Statement kernel, Where to) {
    kernel.value = to.value;
    kernel.to_block = to.block;
    kernel.to_byte = to.byte;
    kernel.writes = true;
    return kernel;
}
constexpr Statement copy(Statement kernel) {
    kernel.what = Do::Copy;
    return kernel;
}
constexpr Statement refused(Byte stream) { return {.what = Do::Launch, .stream = stream, .refused = true}; }
constexpr Statement call(Byte stream, Byte program) { return {.what = Do::Call, .stream = stream, .value = program}; }
constexpr Statement sync(Byte stream = kStreams) { return {.what = Do::Sync, .stream = stream}; }
constexpr Statement raise(Byte flag) { return {.what = Do::Raise, .flag = flag}; }
constexpr Statement await(Byte flag) { return {.what = Do::Await, .flag = flag}; }
constexpr Statement again_until(Byte flag, Byte from = 0) { return {.what = Do::Again, .value = from, .flag = flag}; }
constexpr Statement release(Byte block) { return {.what = Do::Free, .block = block}; }
constexpr Statement allocate(Byte block) { return {.what = Do::Allocate, .block = block}; }
constexpr Statement release_part(Byte block, Byte byte) { return {.what = Do::FreePart, .block = block, .byte = byte}; }
constexpr Statement allocate_part(Byte block, Byte byte) {
    return {.what = Do::Allocate, .block = block, .byte = byte, .writes = true};
}
constexpr Statement end_context(Byte block = 0) { return {.what = Do::EndContext, .block = block}; }
constexpr Statement lend(Where to) {
    return {.what = Do::Lend, .value = to.value, .to_block = to.block, .to_byte = to.byte};
}
constexpr Statement received(Byte stream, Where to) {
    return {.what = Do::Received,
            .stream = stream,
            .block = to.block,
            .value = to.value,
            .to_block = to.block,
            .to_byte = to.byte,
            .writes = true};
}
constexpr Statement straddle(Byte value) { return {.what = Do::Straddle, .value = value}; }

}  // namespace

const std::vector<Scenario>& scenarios() {
    static const std::vector<Scenario> all{
        {.name = "two threads hand blocks over to kernels of two streams",
         .threads = {Program{write(0, 0, 1), raise(f0), write(1, 0, 3),
                             and_writes(reads(1, 1, just(3), kAny), {0, 1, 4}), sync(), read(0, 1, 4)},
                     Program{await(f0), and_writes(reads(0, 0, just(1), kAny), {1, 1, 2}), sync(), read(1, 1, 2),
                             read(0, 0, 1)}}},
        {.name = "a kernel is told of an object that is allocated while it waits",
         .threads = {Program{release(0), writes(0, {0, 1, 2}, f0), allocate(0), raise(f0), write(0, 0, 1), sync(),
                             read(0, 1, 2), reads(0, 0, just(1), just(2))}}},
        {.name = "Dirty blocks are evicted while others write to them",
         .threads = {Program{write(0, 0, 1), write(1, 0, 2), await(f0), reads(0, 0, just(1), just(3)),
                             reads(0, 1, just(2), just(4)), sync(), read(0, 1, 3)},
                     Program{write(0, 1, 3), write(1, 1, 4), raise(f0)}},
         .rolling = true,
         .for_batch = false,
         .must_end = kWhoKeepsStep},
        {.name = "a store lies across two blocks",
         .threads = {Program{straddle(1), reads(0, 0, kAny, just(1)), reads(0, 1, just(1), kAny)}},
         .one_object = true,
         .rolling = true,
         .for_batch = false},
        {.name = "a full stream waits for a thread's launch, while another one reads",
         .threads = {Program{writes(0, {0, 1, 1}, f0), writes(0, {0, 1, 2}), sync(), read(0, 1, 2)},
                     Program{read(1, 0, 0)}, Program{writes(1, {1, 1, 3}), raise(f0)}},
         .queue = 1},
        {.name = "a stream is full behind a host function that waits for a thread's launch",
         .threads = {Program{write(0, 0, 5), call(0, 0), writes(0, {1, 1, 2})},
                     Program{writes(1, {1, 0, 3}), raise(f0)}},
         .calls = {Program{await(f0)}},
         .queue = 1},
        {.name = "a launch takes what a host function wrote into a full stream, which waits for a thread's copy",
         .threads = {Program{writes(0, {0, 1, 1}, f0), call(1, 0), await(f1), writes(0, {1, 1, 2})},
                     Program{await(f1), copy(writes(1, {1, 0, 3})), raise(f0)}},
         .calls = {Program{write(0, 0, 5), raise(f1)}},
         .queue = 1},
        {.name = "a host function uses what kernels of two streams use",
         .threads = {Program{write(0, 0, 1), call(0, 0), reads(0, 0, just(5), kAny), sync(), read(0, 0, 5)},
                     Program{writes(1, {0, 1, 6}), sync(), read(0, 1, 6)}},
         .calls = {Program{read(0, 0, 1), write(0, 0, 5)}}},
        {.name = "a launch takes what a host function writes, which goes on",
         .threads = {Program{call(0, 0), reads(0, 0, just(5), kAny), await(f0), reads(1, 0, just(5), kAny), raise(f1)}},
         .calls = {Program{write(0, 0, 5), raise(f0), await(f1)}}},
        {.name = "a host function begins behind work on a block that another one has",
         .threads = {Program{writes(0, {0, 1, 5}, f0), call(0, 1), call(1, 0), sync(), read(0, 1, 4)}},
         .calls = {Program{read(0, 0, 0), raise(f0), await(f1)}, Program{read(0, 1, 5), write(0, 1, 4), raise(f1)}}},
        {.name = "a host function changes a byte and changes it back while a copy reads it",
         .threads = {Program{writes(1, {1, 0, 1}, f2), call(0, 0), await(f0), copy(reads(0, 0, kAny, kAny)), raise(f1),
                             raise(f2), sync(), read(0, 0, 1)}},
         .calls = {Program{write(0, 0, 1), raise(f0), await(f1), write(0, 0, 2), write(0, 0, 1)}}},
        {.name = "copies and kernels use blocks that the CPU writes before and behind them",
         .threads = {Program{write(0, 0, 1), copy(reads(0, 0, just(1), kAny)), copy(writes(0, {0, 1, 4})),
                             read(0, 1, 4), write(0, 0, 2), copy(writes(0, {0, 1, 5})), read(0, 0, 2), read(0, 1, 5)},
                     Program{write(1, 0, 3), copy(reads(1, 1, just(3), kAny)), write(1, 0, 2),
                             copy(reads(1, 1, just(2), kAny)), writes(1, {1, 1, 4}), read(1, 1, 4), read(1, 0, 2)}}},
        {.name = "a thread waits for a stream, and reads what a host function of another has borrowed",
         .threads = {Program{writes(1, {0, 1, 6}, f0), call(0, 0), sync(1), read(0, 1, 6)}},
         .calls = {Program{read(0, 0, 0), raise(f0), read(0, 0, 0)}}},
        {.name = "a copy reads what a host function uses, beside what a kernel writes",
         .threads = {Program{writes(1, {0, 1, 6}, f1), call(0, 0), await(f0), copy(reads(0, 0, just(5), kAny)),
                             raise(f1), sync(1), read(0, 1, 6), read(0, 0, 5)},
                     Program{await(f0), raise(f1), read(0, 1, 6)}},
         .calls = {Program{write(0, 0, 5), raise(f0), await(f1)}},
         .apart = true},
        {.name = "two host functions look at what a launch is sending",
         .threads = {Program{write(0, 0, 1), write(1, 0, 2), call(0, 0), call(1, 1), reads(0, 0, just(1), kAny)}},
         .calls = {Program{read(0, 0, 1)}, Program{read(1, 0, 2)}}},
        {.name = "a full stream, a host function that uses what a launch releases, and a reader",
         .threads = {Program{write(0, 0, 1), call(0, 0), reads(0, 0, just(1), kAny)}, Program{read(0, 1, 0)}},
         .calls = {Program{read(0, 1, 0)}},
         .queue = 1},
        {.name = "a thread reads what a host function reads that is enqueued meanwhile",
         .threads = {Program{call(0, 0)}, Program{read(0, 1, 0)}},
         .calls = {Program{read(0, 0, 0)}}},
        {.name = "flushes of a launch that the driver refuses",
         .threads = {Program{write(0, 0, 1), write(1, 0, 2), refused(0), raise(f0), read(0, 0, 1),
                             reads(1, 0, just(1), kAny)},
                     Program{await(f0), read(1, 0, 2), reads(0, 1, just(2), kAny)}}},
        {.name = "an object is freed and its address handed out again",
         .threads = {Program{write(0, 0, 1), write(1, 0, 2), refused(0), release(0), allocate(0), write(0, 0, 3),
                             reads(0, 0, just(3), kAny), sync(), read(0, 0, 3)},
                     Program{write(1, 1, 1), reads(1, 1, kAny, just(1)), sync(), read(1, 1, 1)}}},
        {.name = "an allocation is freed beside one that is Dirty",
         .threads = {Program{write(0, 0, 1), release_part(0, 0), allocate_part(0, 0), write(0, 0, 3),
                             and_writes(reads(0, 0, just(3), kAny), {0, 0, 4}), sync(0), read(0, 0, 4)},
                     Program{write(0, 1, 2), reads(1, 0, kAny, just(2)), read(0, 1, 2)}}},
        {.name = "an allocation is freed beside one that a host function writes",
         .threads = {Program{writes(0, {0, 0, 1}), call(0, 0), release_part(0, 0), allocate_part(0, 0),
                             writes(0, {0, 0, 3}), sync(), read(0, 0, 3), read(0, 1, 5)}},
         .calls = {Program{write(0, 1, 5)}}},
        {.name = "a Dirty block is the oldest when its object is freed",
         .threads = {Program{write(0, 0, 1), release(0), allocate(0), raise(f0), write(0, 1, 3),
                             reads(0, 0, kAny, just(3))},
                     Program{write(1, 1, 1), reads(1, 1, kAny, just(1)), await(f0), write(1, 1, 2)}},
         .rolling = true,
         .for_batch = false,
         .must_end = kWhoKeepsStep},
        {.name = "the next block is prefetched, kernels write it, the object is freed",
         .threads = {Program{writes(0, {0, 0, 1}), sync(), read(0, 0, 1), writes(0, {1, 0, 2}), sync(), read(1, 0, 2),
                             await(f0), release(0), allocate(0), write(1, 0, 4), reads(0, 1, just(4), kAny)},
                     Program{writes(1, {1, 1, 3}), sync(), read(1, 1, 3), raise(f0)}},
         .one_object = true,
         .prefetch = true,
         .for_batch = false},
        {.name = "a context's end fails while threads use its objects",
         .threads = {Program{write(0, 0, 1), reads(0, 0, just(1), kAny), sync(), read(0, 0, 1)}, Program{end_context()},
                     Program{write(0, 1, 2), read(0, 1, 2)}}},
        {.name = "a context's end fails while a host function uses its objects",
         .threads = {Program{call(0, 0), sync(), read(0, 0, 5)}, Program{end_context()}},
         .calls = {Program{write(0, 0, 5)}}},
        {.name = "a context's end fails while a host function that waits for it uses its objects",
         .threads = {Program{write(0, 0, 1), call(0, 0), writes(1, {0, 1, 6}), sync(), read(0, 0, 5), read(0, 1, 6)},
                     Program{end_context()}},
         .calls = {Program{read(0, 0, 1), write(0, 0, 5)}}},
        {.name = "all together",
         .threads = {Program{write(0, 0, 1), call(0, 0), and_writes(reads(0, 0, just(5), kAny), {0, 1, 6}), sync(),
                             read(0, 1, 6)},
                     Program{write(1, 0, 2), read(1, 0, 2), raise(f0)},
                     Program{end_context(1), await(f0), release(1), allocate(1), write(1, 0, 4),
                             reads(1, 1, just(4), kAny)}},
         .calls = {Program{read(0, 0, 1), write(0, 0, 5)}},
         .queue = 1},
        {.name = "all together, with one launch more",
         .threads = {Program{write(0, 0, 1), call(0, 0), reads(0, 0, just(5), kAny)},
                     Program{write(1, 0, 2), raise(f0)}, Program{await(f0), writes(1, {1, 1, 3}), sync(1), raise(f1)},
                     Program{end_context(1), await(f1), release(1), allocate(1), write(1, 0, 4)}},
         .calls = {Program{read(0, 0, 1), write(0, 0, 5)}},
         .queue = 1},
        {.name = "a host function writes while others' blocks are evicted and flushes fail",
         .threads = {Program{write(1, 0, 1), call(0, 0), reads(0, 0, just(5), kAny), sync(), read(0, 0, 5)},
                     Program{write(0, 1, 2), write(1, 1, 3), reads(1, 1, kAny, just(3)), read(0, 1, 2)}},
         .calls = {Program{write(0, 0, 5), read(0, 0, 5)}},
         .rolling = true,
         .failures = 1,
         .must_end = kWhoKeepsStep},
        {.name = "a host function reads what is prefetched",
         .threads = {Program{writes(0, {0, 0, 1}), sync(), read(0, 0, 1), read(1, 0, 0)},
                     Program{call(1, 0), writes(1, {1, 1, 3}), sync(), read(1, 1, 3)}},
         .calls = {Program{read(1, 0, 0)}},
         .one_object = true,
         .prefetch = true,
         .for_batch = false},
        {.name = "a context's end fails beside evictions, flushes and prefetched blocks",
         .threads = {Program{writes(0, {0, 0, 1}), sync(), read(0, 0, 1), write(1, 0, 2), refused(0), read(1, 0, 2)},
                     Program{end_context()}, Program{write(1, 1, 3), reads(1, 1, kAny, just(3))}},
         .one_object = true,
         .rolling = true,
         .prefetch = true,
         .for_batch = false,
         .must_end = kWhoKeepsStep},
        {.name = "a context ends, and another has its addresses",
         .threads = {Program{write(0, 0, 1), reads(0, 0, just(1), kAny), end_context(), allocate(0), write(0, 1, 2),
                             reads(0, 0, kAny, just(2)), sync(), read(0, 1, 2)},
                     Program{write(1, 0, 3), refused(1), read(1, 0, 3), reads(1, 1, just(3), kAny)}},
         .context_stays = false},
        {.name = "a flush fails once",
         .threads = {Program{write(0, 0, 1), reads(0, 0, just(1), kAny), read(0, 0, 1), reads(0, 0, just(1), kAny)},
                     Program{write(1, 0, 2), reads(1, 1, just(2), kAny), read(1, 0, 2)}},
         .rolling = true,
         .failures = 1,
         .must_end = kWhoKeepsStep},
        {.name = "a flush fails at a context's end, which ends all the same",
         .threads = {Program{write(0, 0, 1), write(1, 0, 2), end_context()}, Program{read(1, 1, 0), raise(f0)}},
         .failures = 1},
        {.name = "a thread launches without a pause until another has read",
         .threads = {Program{writes(0, {1, 0, 1}), again_until(f0)}, Program{read(0, 0, 0), raise(f0)}}},
        {.name = "a thread reads while another launches, and is told of it",
         .threads = {Program{writes(0, {0, 0, 1}), raise(f0)}, Program{read(0, 1, 0), await(f0), read(0, 0, 1)}}},
        {.name = "threads fault without a pause until another has launched",
         .threads = {Program{write(0, 0, 1), write(1, 0, 1), again_until(f0)},
                     Program{write(0, 1, 1), write(1, 1, 1), again_until(f0)},
                     Program{writes(0, {0, 0, 1}), raise(f0)}},
         .rolling = true,
         .for_batch = false,
         .must_end = 4},
        {.name = "waits bring what kernels wrote, while others launch",
         .threads = {Program{write(0, 0, 1), and_writes(reads(0, 0, just(1), kAny), {0, 1, 2}), sync(), read(0, 1, 2)},
                     Program{writes(1, {1, 1, 3}), sync(), read(1, 1, 3), write(1, 0, 4),
                             reads(1, 1, just(4), just(3))}},
         .batch_only = true},
        {.name = "a message comes to an object that another thread uses beside it",
         .threads = {Program{lend({0, 0, 1}), received(1, {0, 0, 1}), await(f0), read(0, 0, 1), read(0, 1, 2),
                             reads(0, 0, just(1), just(2))},
                     Program{write(0, 1, 3), write(0, 1, 2), raise(f0)}}},
        {.name = "a message comes to one block, and another thread uses the next one before and after",
         .threads = {Program{lend({0, 0, 1}), received(1, {0, 0, 1}), read(0, 0, 1), await(f0), read(1, 0, 2)},
                     Program{write(1, 0, 2), raise(f0), and_writes(reads(0, 1, just(2), kAny), {1, 1, 3}), sync(0),
                             read(1, 1, 3)}},
         .one_object = true},
        {.name = "a message comes to what a host function uses beside it",
         .threads = {Program{lend({0, 0, 1}), received(1, {0, 0, 1}), await(f0), read(0, 0, 1), read(0, 1, 2)},
                     Program{call(0, 0), sync(0), raise(f0)}},
         .calls = {Program{write(0, 1, 2)}}},
        {.name = "a message comes while others launch, wait and look",
         .threads = {Program{lend({0, 0, 1}), received(1, {0, 0, 1}), read(0, 0, 1), write(0, 0, 4), raise(f0)},
                     Program{read(0, 1, 0), writes(0, {0, 1, 2}), sync(0), read(0, 1, 2), await(f0), read(0, 0, 4)}}},
    };
    return all;
}

const std::vector<Mended>& mends() {
    static const std::vector<Mended> all{
        {Mend::CloseBeforeFlush, "a release closes the pages before it flushes", "two threads hand", Wrong::Data},
        {Mend::WaitBeforeGate, "an access waits for the device outside the gate", "a full stream waits",
         Wrong::Deadlock},
        {Mend::PatienceInGate, "a fault that waits for launches lets others in", "a full stream waits",
         Wrong::Deadlock},
        {Mend::LookAfterTaking, "a launch looks for faults after it has taken a slot", "two threads hand", Wrong::Gate},
        {Mend::YieldInGate, "who comes to the gate lets the other group that waits in first", "threads fault",
         Wrong::Starvation},
        {Mend::BlockLaunchesAtLast, "launches without a pause are kept out at last", "a thread launches",
         Wrong::Starvation},
        {Mend::WaitAgain, "an access that work overtakes waits again, and does not borrow", "a thread reads while",
         Wrong::Data},
        {Mend::CountInGate, "work is counted before its launch leaves the gate", "two threads hand", Wrong::Data},
        {Mend::SettleBeforeFetch, "flushes that streams wait for are settled before a fetch", "two host", Wrong::Data},
        {Mend::DrainBeforeSettled, "who finds flushes being settled waits until they are", "two host", Wrong::Data},
        {Mend::StreamWaits, "a launch's stream waits for its flushes", "two threads hand", Wrong::Data},
        {Mend::EveryStreamWaits, "as long as a stream waits for flushes every launch makes its own wait",
         "two threads hand", Wrong::Data},
        {Mend::WaitUnlocked, "a launch waits for a full stream with no block locked", "a full stream, a host",
         Wrong::Deadlock},
        {Mend::WaitWithoutMutex, "a launch waits for a full stream without the mutex of releases",
         "a stream is full behind", Wrong::Deadlock},
        {Mend::RollBack, "blocks keep their states where a flush fails", "a flush fails", Wrong::Data},
        {Mend::PrefetchIsOld, "prefetched bytes are used only if no work came since", "the next block", Wrong::Data},
        {Mend::FreeDrains, "a free waits for flushes", "an object is freed", Wrong::Memory},
        {Mend::FreeDropsPrefetch, "a free waits for what is prefetched", "the next block", Wrong::Memory},
        {Mend::AskAlive, "whether the object is the same is asked inside the gate",
         "a context's end fails while threads", Wrong::Memory},
        {Mend::LookAgainAfterEnding, "who finds no object during a context's end looks again",
         "a context's end fails while threads", Wrong::Memory},
        {Mend::CallWaitsForEnd, "a host function that finds no object waits until a context's end is over",
         "a context's end fails while a host function uses", Wrong::Memory},
        {Mend::EndFlushes, "a context's end flushes first", "a context's end fails while threads", Wrong::Data},
        {Mend::BirthAsksDevice, "an object that is born while the device works may hold data", "a kernel is told",
         Wrong::Data},
        {Mend::FreeEndsLoans, "a free that may fail ends loans", "a context's end fails while a host function that",
         Wrong::Data},
        {Mend::PartLeavesFirst, "an allocation leaves the table before its free waits for transfers",
         "an allocation is freed beside one that a", Wrong::Memory},
        {Mend::PartDrains, "the free of one allocation of several waits for flushes",
         "an allocation is freed beside one that is", Wrong::Memory},
        {Mend::PartClosesGap, "a page without an allocation is closed", "an allocation is freed beside one that is",
         Wrong::Data},
        {Mend::EvictClosesFirst, "an eviction closes the pages before it flushes", "Dirty blocks", Wrong::Data},
        {Mend::EvictAsksAlive, "an eviction asks whether the object is the same", "a Dirty block", Wrong::Memory},
        {Mend::StraddledStay, "neighbours stay Dirty together", "a store lies", Wrong::Starvation},
        {Mend::AcquireAsksIdle, "a wait brings blocks only if the device is idle", "waits bring", Wrong::Data},
        {Mend::Borrow, "a host function borrows and does not wait", "a host function uses", Wrong::Deadlock},
        {Mend::ListBeforeIdle, "a borrowed block is listed before the device is looked at", "a host function uses",
         Wrong::Data},
        {Mend::FlushChanges, "of a borrowed block only changed bytes are flushed", "a host function uses", Wrong::Data},
        {Mend::OpenOwnPart, "a host function opens the pages of the allocation that it uses alone", "a copy reads what",
         Wrong::Data},
        {Mend::CloseBorrowed, "a borrowed block is closed where a copy leaves it valid", "a copy reads what",
         Wrong::Data},
        {Mend::CopyKeepsLoan, "a copy ends no loan", "a copy reads what", Wrong::Data},
        {Mend::DrainBeforeTwin, "a twin is made when no flush reads the block", "a host function changes", Wrong::Data},
        {Mend::CallbackEndsLoans, "the end of a host function ends its loans", "a host function uses", Wrong::Data},
        {Mend::CallbackBeginsFresh, "a host function begins without others' loans", "a host function begins",
         Wrong::Data},
        {Mend::CallbackSettles, "a host function's stream waits for what others flushed of it", "a launch takes",
         Wrong::Data},
        {Mend::WaitEndsLoans, "a wait of the program ends loans", "a thread waits", Wrong::Data},
        {Mend::CallInGate, "a host function is enqueued inside the gate", "a thread reads", Wrong::Deadlock},
        {Mend::BorrowLent, "an access to a lent object borrows", "a message comes to an", Wrong::Data},
        {Mend::LendSeesUse, "an object that the CPU uses is not lent", "a message comes to an", Wrong::Data},
        {Mend::AskLentMapped, "whether an object is lent is asked once it is mapped", "a message comes to",
         Wrong::Data},
        {Mend::ReceivedIsNewest, "what was received is the device's newest", "a message comes to an", Wrong::Data},
        {Mend::LentIsWritten, "a host function's loan of a lent object keeps a twin", "a message comes to what",
         Wrong::Data},
        {Mend::AcquireSkipsLent, "a wait brings nothing of a lent object", "a message comes while", Wrong::Data},
    };
    return all;
}

}  // namespace checker
