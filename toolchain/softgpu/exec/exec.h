// SPDX-License-Identifier: MIT
// What the soft device's driver asks of its executor: turn PTX text into a Program, and run a kernel of it.
// The executor knows nothing of contexts, streams or allocations; it sees device memory through AddressSpace.
//
// Threads: a Program is immutable once its variables are placed and may be run by any number of threads at once.
// Errors: no function throws and none ends the process; what went wrong comes back as a Failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hpe::soft {

enum class Fault {
    None,
    InvalidPtx,      // the text is no PTX, or contradicts itself
    Unsupported,     // legal PTX that this executor does not run; the message names kernel, line and instruction
    InvalidLaunch,   // grid, block, shared memory or parameters out of range
    IllegalAddress,  // an access outside every allocation; the message names kernel, block, thread and address
    MisalignedAddress,
    IllegalInstruction,  // for example a branch through a bad function pointer
    Trap,                // the kernel executed trap
    Assert,
};

// One line of text, no newline; empty when fault is None.
struct Failure {
    Fault fault = Fault::None;
    std::string message;
    explicit operator bool() const { return fault != Fault::None; }
};

struct Parameter {
    std::uint32_t offset;  // bytes from the start of the parameter buffer
    std::uint32_t size;    // bytes
    std::uint32_t alignment;
};

struct KernelInfo {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;
    std::uint32_t static_shared_bytes = 0;
    std::uint32_t local_bytes = 0;     // per thread
    std::uint32_t max_threads = 1024;  // per block, .maxntid respected
    std::uint32_t registers = 0;       // per thread, as declared
};

// A module-scope .global or .const variable. The driver places it in device memory, copies `initial` there and applies
// `relocations` (each an 8-byte address of another variable or of a kernel) before the first launch.
struct Relocation {
    std::uint64_t offset;  // bytes from the start of the variable
    std::string symbol;
    std::int64_t addend;
};
struct Variable {
    std::string name;
    bool constant = false;
    bool external = false;  // declared, defined elsewhere
    bool managed = false;   // .attribute(.managed): shared with the host
    std::uint64_t size = 0;
    std::uint64_t alignment = 1;
    std::vector<std::byte> initial;  // shorter than size: the rest is zero
    std::vector<Relocation> relocations;
};

// A run of valid device-visible addresses and where its bytes are in this process.
struct Range {
    std::uint64_t begin = 0, end = 0;  // device addresses, end exclusive
    std::byte* host = nullptr;         // the byte at `begin`
    bool writable = true;
};

// What a texture object tells of its memory and of how to read it. Extents in elements, strides in bytes.
struct Texture {
    enum class Format : std::uint8_t { U8, U16, U32, S8, S16, S32, F16, F32 };
    enum class Address : std::uint8_t { Wrap, Clamp, Mirror, Border };

    Format format = Format::U8;
    std::uint8_t channels = 1;
    std::uint8_t dimensions = 1;  // without the layers
    bool layered = false;
    bool linear = false;             // memory in one dimension, without coordinates but integer ones
    bool normalized = false;         // coordinates from 0 to 1
    bool integers_as_float = false;  // from 0 to 1, or from -1 to 1
    Address address[3] = {};
    std::uint32_t extent[3] = {1, 1, 1};
    std::uint32_t layers = 1;
    std::uint64_t base = 0, pitch = 0, slice = 0;  // slice: between planes or layers
    std::uint32_t border[4] = {};                  // what a fetch returns
};

// Implemented by the driver. find() and texture() are called from worker threads on every miss of their caches: they
// must be thread safe and must not block on a lock held while a kernel runs; find() answers for exactly one allocation
// (never a union).
class AddressSpace {
public:
    virtual ~AddressSpace() = default;
    virtual bool find(std::uint64_t address, Range& out) const noexcept = 0;
    // cudaGraphSetConditional. False: the kernel does not run in a graph with that handle.
    virtual bool set_conditional(std::uint64_t /*handle*/, std::uint32_t /*value*/) const noexcept { return false; }
    // malloc and free of kernels, from worker threads. 0: no memory left. release: false, when it is no such address.
    virtual std::uint64_t allocate(std::uint64_t /*bytes*/) const noexcept { return 0; }
    virtual bool release(std::uint64_t /*address*/) const noexcept { return false; }
    // The texture object with this handle; nullptr: none.
    virtual std::shared_ptr<const Texture> texture(std::uint64_t /*handle*/) const noexcept { return nullptr; }
};

struct Dim3 {
    std::uint32_t x = 1, y = 1, z = 1;
};

struct Launch {
    Dim3 grid, block;
    std::uint32_t dynamic_shared_bytes = 0;
    std::uint32_t stack_bytes = 0;          // asked for per thread; a bounded need is always met
    bool cooperative = false;               // every block resident at once; grid-wide barriers may be used
    std::span<const std::byte> parameters;  // laid out as KernelInfo::parameters says
    std::uint64_t launch_id = 0;
};

class Program {
public:
    virtual ~Program() = default;

    // Parses and checks the module. Kernels are translated when first needed, so a module with one kernel that this
    // executor cannot run still loads.
    static std::shared_ptr<Program> load(std::string_view ptx, Failure& failure);

    virtual std::vector<std::string> kernels() const = 0;
    virtual int target() const = 0;  // 75: the text was compiled for sm_75
    virtual std::span<const Variable> variables() const = 0;

    // Tells the program where the driver put a variable. Before the first launch, by one thread.
    virtual void place(std::string_view variable, std::uint64_t device_address) = 0;

    // Translates a kernel. Returns nullptr with the failure set when it is missing (InvalidLaunch) or cannot be run.
    // Idempotent, thread safe; the pointer lives as long as the program.
    virtual const KernelInfo* prepare(std::string_view kernel, Failure& failure) = 0;

    // The value that the address of a kernel or device function has in this program (Relocation::symbol); 0: none.
    virtual std::uint64_t code_address(std::string_view symbol) const = 0;

    // Runs the grid to its end on the calling thread and the shared workers. The kernel must have been prepared.
    virtual Failure run(std::string_view kernel, const Launch& launch, const AddressSpace& memory) = 0;
};

// Functions that kernels call and no module defines, because every device has them: vprintf, malloc and their like.
bool is_device_function(std::string_view name);
// Functions of CUDA's device runtime (libcudadevrt), with which kernels launch kernels. Kernels that call one are
// refused.
bool is_device_runtime_function(std::string_view name);

// Number of threads that run blocks, the caller's included. Set once, before the first run; 0: one per usable core.
void set_worker_threads(unsigned count);
// Number of thread instructions run so far in this process.
std::uint64_t executed_instructions();
// Before the first program is loaded: kernels translated from now on are watched for races in shared memory and for
// barriers that not all threads of a block come to. `report` gets one line, without newline, for each pair of
// instructions that raced; from any worker thread, one at a time. nullptr: no longer.
void check_races(void (*report)(const char* line));
// In a forked child: forget the workers, which do not exist there.
void forget_workers();

}  // namespace hpe::soft
