// SPDX-License-Identifier: MIT
// The executor's machine, which models a multiprocessor as PTX describes it (PTX ISA, "PTX Machine Model"): pre-decoded
// instructions, warps as groups of lanes, call frames, blocks and launches.
//
// Registers are arrays of 32 lanes (structure of arrays) in the frame of the function; predicates are one 32-bit mask.
// An operand is an offset into the frame, or, with bit 0 set, into the constants of the code, which are arrays as well.
// A warp is a list of groups of lanes with equal program counter; the current group is not on the list.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft::exec {

constexpr unsigned lanes = 32;
constexpr std::uint32_t all_lanes = 0xffffffffu;
constexpr unsigned named_barriers = 16;

// Generic addresses of what is not device memory. They are not canonical, so no pointer of the process can be one.
constexpr unsigned window_shift = 56;
constexpr std::uint64_t shared_window = std::uint64_t{0x5a} << window_shift;
constexpr std::uint64_t local_window = std::uint64_t{0x5c} << window_shift;
constexpr std::uint64_t param_window = std::uint64_t{0x5e} << window_shift;
constexpr std::uint64_t workspace_window = std::uint64_t{0x60} << window_shift;  // of a cooperative launch
constexpr std::uint64_t code_window = std::uint64_t{0x62} << window_shift;       // addresses of functions

enum class Memory : std::uint8_t { Global, Shared, Local, Param, Generic };

struct Warp;
struct Instr;
class Races;
// Runs the instruction for the lanes in `mask` and returns the next one; nullptr: look at Warp::stop.
using Handler = const Instr* (*)(Warp&, const Instr*, std::uint32_t mask);

struct Instr {
    Handler run = nullptr;
    std::uint64_t imm = 0;
    std::uint32_t dst = 0;
    std::uint32_t src[4] = {};
    std::uint32_t guard = 0;  // offset of a predicate, bit 0: negated; 0: none
    std::uint32_t extra = 0;  // first of `count` operands in Code::extras
    std::uint32_t line = 0;
    std::uint16_t count = 0;
    std::uint16_t mode = 0;  // of handlers that need more
    Memory memory = Memory::Global;
    std::uint8_t flags = 0;
};
constexpr std::uint8_t flag_address32 = 1;     // src[0] is a 32-bit register
constexpr std::uint8_t flag_synchronises = 2;  // volatile, acquire, relaxed: a loop around it may be waiting
constexpr std::uint8_t flag_negated = 4;       // the predicate in src counts negated
constexpr std::uint8_t flag_flush = 8;         // atomics: flush subnormals
constexpr std::uint8_t flag_frame = 16;        // the address counts from the frame's local memory
constexpr std::uint8_t flag_aligned = 32;      // barriers: all lanes of a warp must be at the same instruction

// Of bulk copies: which of src[0], src[1] and src[3] are 32-bit registers.
constexpr std::uint8_t flag_bulk32 = 1, flag_bulk_mbarrier32 = 4;

struct Copy {  // of call parameters, in the local memory of a thread
    std::uint32_t from, to, bytes;
};

// What an instruction does to shared memory, where races are looked for: the handler that does it, and how to see it.
struct Watched {
    enum class Kind : std::uint8_t {
        None,
        Load,
        Store,
        Atomic,
        Reduction,
        CopyAsync,
        CopyBulk,
        Mbarrier,
        MbarrierWait
    };
    Handler run = nullptr;
    Kind kind = Kind::None;
    bool strong = false;     // volatile, relaxed, acquire, release: orders rather than races
    std::uint8_t bytes = 0;  // of an element in memory
    std::uint8_t register_bytes = 0;
};

// A translated function.
struct Code {
    std::string name;
    std::vector<Instr> instructions;
    std::vector<Watched> watched;  // as many, or none
    std::vector<std::uint32_t> extras;
    std::vector<std::byte> constants;
    struct Fixup {
        std::uint32_t offset;  // into constants
        std::string symbol;
        std::int64_t addend;
        unsigned bytes;  // of a value, 4 or 8
    };
    std::vector<Fixup> fixups;
    std::uint32_t register_bytes = 0;
    std::uint32_t local_bytes = 0;   // .local variables and .param space, per thread
    std::uint32_t shared_bytes = 0;  // declared in the function
    std::uint32_t declared_registers = 0;
    std::vector<std::uint32_t> parameter_at, parameter_size, result_at, result_size;  // in its local memory
    std::vector<std::uint32_t> callees;                                               // function numbers
    bool calls_indirectly = false;
    bool allocates = false;  // takes stack as it runs
    bool reserves = false;   // uses the shared memory that the system reserves
    bool entry = false;
};

struct Frame {
    std::byte* registers = nullptr;
    const Code* code = nullptr;
    Frame* parent = nullptr;
    const Instr* call = nullptr;  // in the parent
    std::uint32_t live = 0;       // lanes that are in this frame or in one called from it
    std::uint32_t depth = 0;
    std::uint32_t local_base = 0;
    std::uint32_t dynamic = 0;  // bytes that alloca took, beyond those of the code
};

enum class State : std::uint8_t { Runnable, AtBarrier, AtSync };
struct Group {
    const Instr* pc = nullptr;
    Frame* frame = nullptr;
    std::uint32_t mask = 0;
    State state = State::Runnable;
    std::uint32_t barrier = 0;
    std::uint64_t last_run = 0;
};

enum class Stop : std::uint8_t { None, Reschedule, Done, Barrier, Sync, Fault };

struct Block;
struct Worker;
struct LaunchState;

struct Warp {
    std::byte* base[2] = {};      // registers of the frame, constants of its code
    std::uint32_t mask = 0;       // of the current group
    std::int32_t budget = 0;      // block leaders until the scheduler looks again
    const Instr* join = nullptr;  // lowest place in this frame where another group waits to be joined; nullptr: none
    Frame* frame = nullptr;
    Stop stop = Stop::None;
    bool expired = false;       // the budget ran out while others wait
    bool spins = false;         // the group did something that loops that wait for others do
    const Instr* pc = nullptr;  // where the group stopped
    std::uint32_t exited = 0;   // lanes that have exited or never existed
    std::uint32_t index = 0;    // within the block
    std::uint32_t barrier = 0;  // at which the group stopped
    std::uint32_t extensions = 0;
    std::uint64_t executed = 0;  // thread instructions
    std::uint64_t clock = 0;     // scheduling decisions
    Block* block = nullptr;
    std::byte* local = nullptr;  // of 32 threads, interleaved in granules of 16 bytes
    std::vector<Group> groups;
    Frame root;
    std::vector<Frame*> free_frames;
    std::uint32_t tid[3][lanes] = {};

    template <class T>
    [[gnu::always_inline]] T* at(std::uint32_t ref) const {
        return reinterpret_cast<T*>(base[ref & 1] + (ref & ~1u));
    }
    [[gnu::always_inline]] std::uint32_t predicate(std::uint32_t ref) const { return *at<std::uint32_t>(ref); }
    const Instr* leave(Stop why, const Instr* where) {
        stop = why;
        pc = where;
        return nullptr;
    }
};

struct Barrier {
    std::uint32_t waiting = 0;   // threads, as counted by bar.sync without a count
    std::uint32_t arrived = 0;   // threads that arrived and went on
    std::uint32_t expected = 0;  // 0: all live threads
    std::uint32_t ones = 0;      // bar.red: threads with a true predicate
    std::uint32_t voters = 0;
};

struct Block {
    Dim3 id;
    std::uint64_t linear = 0;
    LaunchState* launch = nullptr;
    Worker* worker = nullptr;
    std::vector<std::unique_ptr<Warp>> warps;
    std::uint32_t warp_count = 0;
    std::uint32_t live_threads = 0;
    Barrier barriers[named_barriers];
    std::vector<std::byte> shared_storage;
    std::byte* shared = nullptr;
    std::byte* local_storage = nullptr;
    std::size_t local_storage_bytes = 0;
    std::vector<std::byte> registers;
    Races* races = nullptr;    // owned; nullptr: they are not looked for
    std::uint64_t slices = 0;  // turns since it last got further than spinning
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block();
};

struct Worker {
    LaunchState* launch = nullptr;
    const AddressSpace* memory = nullptr;
    static constexpr unsigned cached = 8;
    Range ranges[cached];
    unsigned next_range = 0;
    struct BoundTexture {
        std::uint64_t handle = 0;
        std::shared_ptr<const Texture> texture;
    };
    BoundTexture textures[cached];
    unsigned next_texture = 0;
    std::uint64_t executed = 0;
    std::string output;  // of printf
};

// The functions of a program by number, as calls name them.
struct ProgramImage {
    virtual ~ProgramImage() = default;
    virtual const Code* code(std::uint64_t number) const = 0;                // nullptr: none, or not translated
    virtual std::string source(const Code& code, const Instr& i) const = 0;  // "line 12: ld.global.f32 ..."
};

struct LaunchState {
    const ProgramImage* program = nullptr;
    const Code* code = nullptr;
    const KernelInfo* kernel = nullptr;
    Dim3 grid, block;
    std::uint32_t static_shared = 0, shared_bytes = 0, dynamic_shared = 0;
    std::uint32_t reserved_at = 0;  // in shared memory, behind the program's own
    std::uint32_t local_bytes = 0;  // per thread, the stack of calls included
    std::uint32_t warps_per_block = 0, threads_per_block = 0;
    bool cooperative = false;
    std::uint64_t launch_id = 0;
    std::vector<std::byte> parameters;
    alignas(64) std::byte workspace[256] = {};
    const AddressSpace* memory = nullptr;
    std::uint64_t blocks = 0;
    std::atomic<std::uint64_t> next_block{0};
    std::atomic<std::uint64_t> executed{0};
    std::atomic<bool> failed{false};
    std::mutex lock;  // failure, output
    Failure failure;
    std::string output;
    std::uint64_t started_ns = 0;
};

// Calls f(lane) for every lane of the mask.
template <class F>
void each(std::uint32_t mask, F f) {
    for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(__builtin_ctz(mask)));
}

// "thread (1,2,3)", for messages.
std::string position(const char* what, std::uint64_t x, std::uint64_t y, std::uint64_t z);

// The first failure of a launch wins and ends it. Both return nullptr with Warp::stop set.
const Instr* fail(Warp& w, const Instr* i, Fault fault, unsigned lane, const std::string& what);
const Instr* fail_address(Warp& w, const Instr* i, unsigned lane, std::uint64_t address, unsigned bytes, bool write,
                          bool misaligned);

}  // namespace hpe::soft::exec
