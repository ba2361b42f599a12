// SPDX-License-Identifier: MIT
// The centre: all doors and the fault handler call it. It calls the object table, the protocol, the engine and the
// pager, which do not know each other.
//
// Sources: ADSM/GMAC paper section 4.3 (release at launch, acquire at wait, rolling eviction); thesis section 5.2.3
// (any thread may fault on any object of any device; a launch releases what all threads wrote).
//
// Threads: any. In a signal handler only what finds objects and what stands under "faults" may be called. Every
// function that returns CUresult returns what the program's own call should return; on failure nothing has changed for
// the program's data.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "protocols/object_sweeps.h"
#include "protocols/object_table.h"
#include "protocols/protocol.h"
#include "protocols/sweeps.h"
#include "shim/base/launch_gate.h"
#include "shim/base/mutex.h"
#include "shim/base/spin_lock.h"
#include "shim/memory/object.h"

namespace hpe {

struct Loan;
namespace trace {
class Fault;
}

// Bytes [begin, begin + bytes) of device memory that a call reads or writes.
struct DeviceRange {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
};

class Coherence {
public:
    // Once, before anything else. `block_size` in bytes, 0: adaptive.
    void configure(Protocol* protocol, std::size_t block_size);

    // --- objects -----------------------------------------------------------------------------------------------------
    // Size to ask the driver for, so that the allocation shares no page with another. 0: leave the request alone.
    static std::size_t padded(std::size_t requested) noexcept {
        if (requested == 0 || requested > std::numeric_limits<std::size_t>::max() - kPage) return 0;
        return (requested + kPage - 1) / kPage * kPage;
    }
    // Whether the driver places such an allocation of linear memory (cuMemAlloc) in a chunk that others share: then it
    // is asked for as it is, and is a part of a region.
    bool in_region(std::size_t requested) const noexcept {
        return requested != 0 && requested < Allocations::kChunk && !no_regions_.load(std::memory_order_relaxed);
    }
    // After the true allocation, in the current context. False: its pages cannot be shared, and nothing has happened.
    bool track_in_region(std::uintptr_t base, std::size_t requested);
    // Whether the CPU has accessed any object so far: this program needs its objects shared.
    bool used_by_cpu() const noexcept { return ever_mapped_.load(std::memory_order_acquire); }
    // After the true allocation of `padded(requested)` bytes, in the current context. The allocation is device-owned
    // from then on if it cannot be managed. Which devices may access it is said by the context's peer access, or by
    // calls of its own (cuMemPoolSetAccess, cuMemSetAccess).
    // `context` is what it belongs to; nullptr: the current one.
    enum class Peers : bool { OwnAccess, OfContext };
    [[gnu::hot]] void track(std::uintptr_t base, std::size_t requested, Peers may_access = Peers::OfContext,
                            CUcontext context = nullptr);
    // A variable of a module in the context. In the gate, as a launch. False: it cannot be shared.
    bool track_variable(CUcontext context, std::uintptr_t base, std::size_t bytes);
    // False: no object ever held the address, nor does uncached memory.
    bool may_hold(std::uintptr_t address) const noexcept {
        return address < highest_.load(std::memory_order_relaxed) && address >= lowest_.load(std::memory_order_relaxed);
    }
    // The same of a range; also false for one that reaches out of the address space, which is nobody's memory.
    bool may_overlap(std::uintptr_t begin, std::size_t bytes) const noexcept {
        constexpr std::uintptr_t kEnd = std::uintptr_t{1} << 47;
        return begin < highest_.load(std::memory_order_relaxed) && bytes <= kEnd - begin &&
               begin + bytes > lowest_.load(std::memory_order_relaxed);
    }
    // From now on they may. Outside the fault path.
    void look_at(std::uintptr_t begin, std::size_t bytes) noexcept;
    // Whether one begins where the other ends, on the device and in the arena, and both are of one context.
    static bool side_by_side(const Object& low, const Object& high) noexcept;
    // The object that starts at / has the address in an allocation, or nullptr.
    Object* object_at(std::uintptr_t base) const noexcept;
    Object* object_of(std::uintptr_t address) const noexcept;
    // The allocation that starts at / contains the address, or none.
    [[gnu::hot]] Allocation allocation_at(std::uintptr_t base) const noexcept;
    Allocation allocation_of(std::uintptr_t address) const noexcept;

    // Before begin_free(), outside the gate. Tells caches of registered memory (of UCX, libfabric, Open MPI) to drop
    // the object's range, since the next object may get the same addresses. Not called for memory that ends with its
    // context.
    void about_to_free(const Allocation& allocation) const noexcept {
        if (allocation.object->shadowed.load(std::memory_order_acquire) != 0) tell_unmapped(allocation);
    }
    // Around the true free: begin_free() unmaps the shadow, if the allocation is not one of several in its object; if
    // it succeeds, exactly one of the two others follows. In the gate, as a launch. CUDA_ERROR_INVALID_VALUE: another
    // thread is freeing it; CUDA_ERROR_OUT_OF_MEMORY: it stays.
    enum class Refusal : std::uint8_t { Possible, None };  // of the true free; None: it has been made
    [[gnu::hot]] CUresult begin_free(Allocation& allocation, Refusal refusal = Refusal::Possible);
    [[gnu::hot]] void finish_free(const Allocation& allocation);
    void cancel_free(const Allocation& allocation);

    // Frees all objects of a context that is about to end. If the true call fails, restore_context() takes the returned
    // list. Inside the gate, as a launch, and in the scope of an Ending, as all that may come back: a fault that finds
    // nothing meanwhile looks again when the Ending is over.
    class Ending {
    public:
        explicit Ending(Coherence& coherence) noexcept : coherence_(coherence) {
            coherence_.ending_.fetch_add(1, std::memory_order_acq_rel);
        }
        ~Ending() {
            coherence_.ends_.fetch_add(1, std::memory_order_acq_rel);
            coherence_.ending_.fetch_sub(1, std::memory_order_acq_rel);
        }
        Ending(const Ending&) = delete;
        Ending& operator=(const Ending&) = delete;

    private:
        Coherence& coherence_;
    };
    struct Kept {
        std::uintptr_t base;
        std::size_t requested;
        Peers may_access;
        bool whole_pages = true;
    };
    std::vector<Kept> drop_context(CUcontext context);
    void restore_context(CUcontext context, std::span<const Kept> kept);

    // Brings the device copy up to date and stops sharing the object at the address with the CPU, since another process
    // or API will access it. Outside the gate. `reason`: device_owned::add. What is no object there, or not yet, stays
    // none.
    CUresult hand_over(std::uintptr_t address, const char* reason);
    // The same where virtual_memory.h knows already who else may write the memory, and is not told.
    CUresult hand_over_object(std::uintptr_t address, const char* reason);
    // Inside the gate, as a launch.
    CUresult hand_over_in_gate(std::uintptr_t address, const char* reason);
    // Between begin_free() and the true free: ends accesses to those of its pages that others may write, too.
    void end_uncached(const Allocation& allocation) {
        if (allocation.object->is_region()) end_uncached_of_region(allocation);
    }
    // Device memory that is no object, nor shall be: accesses to it, and to what shares its pages, are uncached.
    void keep_off(std::uintptr_t base, std::size_t bytes, const char* reason);
    // hand_over() of a range, which may be rounded to whole pages: what lies in its first page alone, and began before
    // it, is not meant if something else begins there.
    CUresult hand_over(DeviceRange range, const char* reason);

    // --- doors -------------------------------------------------------------------------------------------------------
    LaunchGate& launch_gate() noexcept { return launch_gate_; }
    // False: no block of any object is valid on the host and no flush is under way, so a launch has nothing to do.
    bool needs_release() const noexcept { return host_valid_objects_.load(std::memory_order_acquire) != 0; }
    // Flushes every Dirty block and invalidates every host copy. Inside the gate, as a launch. Without `stream` the CPU
    // waits until the device has all bytes; with one, of the current context, that stream waits instead.
    CUresult release(const CUstream* stream = nullptr);
    // The same for a range that the device is about to read or overwrite. Inside the gate, as a launch.
    CUresult before_device_reads(DeviceRange range, const CUstream* stream = nullptr) {
        return apply_to_range(range, Event::DeviceRead, stream);
    }
    CUresult before_device_writes(DeviceRange range, const CUstream* stream = nullptr) {
        return apply_to_range(range, Event::DeviceWrite, stream);
    }
    // The program waited for the device. Outside the gate.
    void acquire() noexcept;
    // Whether a wait moves anything.
    bool acts_on_acquire() const noexcept { return protocol_->acts_on_acquire(); }
    // Host callbacks will run. Makes what serving their faults needs, since during a callback driver calls that wait
    // for the device would never return.
    void expect_callbacks();
    bool expects_callbacks() const noexcept { return callbacks_.load(std::memory_order_relaxed); }

    // --- faults ------------------------------------------------------------------------------------------------------
    enum class Served {
        Done,     // the access may be repeated
        NotOurs,  // deliver the fault as if we were not here
    };
    struct Access {
        std::uintptr_t address = 0;
        bool is_write = false;
        std::uintptr_t instruction = 0;  // that made it, for the report
        bool by_call = false;            // a call is given the bytes, which the program did not access itself
    };
    // `traced` is told what became of it.
    Served serve_fault(const Access& access, trace::Fault& traced) noexcept;

    // Of memory that is no object's (uncached.h): waits for the device work that was enqueued before the access, as
    // serve_fault() does. `by_helper`: not by this thread.
    CUresult wait_before_access(bool by_helper) noexcept;
    // A page of it was mapped for the access: what was there before is there again.
    void close_page(std::uintptr_t page) noexcept;
    // A thread has pages open so: what others stored there is not on the device yet (uncached::let_step_end()).
    bool page_open() const noexcept { return page_open_.load(std::memory_order_acquire); }
    void set_page_open(bool open) noexcept { page_open_.store(open, std::memory_order_seq_cst); }

    // For calls that do not trap (lease.h). The range lies in the object; `caller` is the instruction that the report
    // names. False, or nullptr: the device cannot give, or take, the bytes any more, or the object is gone.
    //
    // Makes what a call reads valid on the host, in the view: there it stays even if its blocks do not. Returns where.
    const std::byte* ready_to_read(Object& object, std::uintptr_t begin, std::size_t bytes,
                                   const void* caller) noexcept;
    // Makes the range accessible at its device address, until a launch or an eviction takes a block of it.
    bool ready_to_write(Object& object, std::uintptr_t begin, std::size_t bytes, const void* caller) noexcept;
    // Stores bytes that a call has put beside the object, as a CPU write does.
    bool store(Object& object, std::uintptr_t begin, const std::byte* from, std::size_t bytes,
               const void* caller) noexcept;
    // The same of whole blocks that the range begins with, from a source that may have less: their old bytes are not
    // asked for. Returns how many bytes were stored: 0 where there is no such block, or the source failed.
    class Source {
    public:
        // Puts its first bytes there; called once. False: `to` is undefined.
        virtual bool fill(std::byte* to, std::size_t bytes) noexcept = 0;

    protected:
        ~Source() = default;
    };
    std::size_t overwrite(Object& object, std::uintptr_t begin, std::size_t bytes, Source& source) noexcept;

    // Ends every loan (loans.h). Called when a door returns whose thread faulted inside the driver, since the device
    // work of that call is enqueued already; and when the program has waited, since it may read what the device wrote
    // to borrowed blocks. All loans end, since a thread that writes to a block which another thread borrowed does not
    // trap.
    void end_loans() noexcept;
    // The same where this_thread.touched_inside: once the thread has left the driver.
    void end_touched_inside() noexcept;
    // A host callback has returned and its stream goes on. Ends every loan, and waits for what launches flushed of
    // borrowed blocks since the callback began, for which only the launches' streams wait. `began`: loans_sent() when
    // the callback began.
    void end_callback(std::uint64_t began) noexcept;
    std::uint64_t loans_sent() const noexcept { return loans_sent_.load(std::memory_order_acquire); }

    // What a callback wrote, or an access to uncached memory, could not be sent, and device work went on without it. As
    // after a sticky error of CUDA's, every release and wait then fails, and no block is fetched, until the context
    // ends; after the errors of several contexts, until all of these have ended.
    CUresult sticky_error() const noexcept { return sticky_error_.load(std::memory_order_acquire); }
    void set_sticky_error(CUcontext context, CUresult result) noexcept;  // nullptr: no context's end clears it
    void forget_sticky_error(CUcontext context) noexcept;                // the context has ended

    const ObjectTable<Object>& table() const noexcept { return table_; }
    // That were ever made, but for those that were freed untouched and made again at once.
    std::uint64_t objects_made() const noexcept { return objects_made_.load(std::memory_order_relaxed); }

private:
    std::size_t allocations() const noexcept { return allocations_.load(std::memory_order_relaxed); }
    struct Made;
    void tell_unmapped(const Allocation& allocation) const noexcept;
    static void end_uncached_of_region(const Allocation& allocation);
    [[gnu::hot]] Object* make_object(const Made& made);
    [[gnu::hot]] Object* take_last_freed(const Made& made);
    std::size_t block_bytes_of(const Made& made) const noexcept;
    Object* new_object(const Made& made, Object* again);
    [[gnu::hot]] static void describe(Object& object, const Made& made);
    void give_up(Object& object);
    static bool reserved(std::uintptr_t begin, std::size_t size, std::uintptr_t allocation) noexcept;
    static bool reserved_as_whole(std::uintptr_t in_chunk) noexcept;
    bool add_to_region(CUcontext context, std::uintptr_t base, std::size_t requested) HPE_REQUIRES(regions_);
    bool add_with_data(CUcontext context, std::uintptr_t base, std::size_t bytes) HPE_REQUIRES(regions_);
    void share_no_page(std::uintptr_t base, std::size_t bytes);
    struct BlockRange {
        std::uint32_t first = 0, end = 0;
        bool empty() const noexcept { return first == end; }
    };
    // Locks the blocks of the range, with signals blocked. On the device: none of them is valid on the host; empty: the
    // device does not take the bytes.
    static BlockRange lock_blocks(Object& object, DeviceRange range) noexcept;
    BlockRange lock_on_device(Object& object, DeviceRange range);
    bool mark_uncached(Object& region, std::uintptr_t page) HPE_REQUIRES(regions_);
    void keep_apart(Object& region, const Allocations::One& one);
    static void close_gaps(const Object& region, std::size_t offset, std::size_t bytes) noexcept;
    CUresult leave_region(Object& object, const Allocation& allocation);
    [[gnu::hot]] CUresult begin_free(Object& object);
    [[gnu::hot]] void finish_free(Object& object);
    void cancel_free(Object& object);
    void drop(Object& object, std::vector<Kept>& kept);
    void recycle(Object& object);
    // `address`: of an allocation that the caller holds.
    bool map_shadow(Object& object, std::uintptr_t address, bool unordered) noexcept;
    void merge_mappings() noexcept;
    void spare_mappings(const Object* kept) noexcept;
    void unmap_others(const Object* kept) noexcept;
    struct Run;
    Sweeps::Reach reach_of(Object& object, std::uint32_t serial, std::uint32_t index, bool is_write,
                           ThreadSweeps& sweeps) noexcept;
    bool serve(Object& object, std::uint32_t serial, const Access& access, ThreadSweeps& sweeps,
               trace::Fault& traced) noexcept;
    bool borrow(Object& object, std::uint32_t serial, const Access& access, trace::Fault& traced) noexcept;
    bool device_waits_for_us() const noexcept;
    bool wait_for_ending() const noexcept;
    static bool keep_twin(Loan& loan) noexcept;
    struct Neighbours;
    Object* neighbour(const Object& object, bool upwards) const noexcept;
    void open_neighbours(Object& object, Event event, State next, ObjectSweeps& sweeps) noexcept;
    void find_neighbours(const Object& object, const ObjectSweeps::Reach& reach, Neighbours& found) const noexcept;
    void lock_neighbours(Neighbours& found, bool upwards, Event event, State next) const noexcept;
    bool map_neighbours(Neighbours& opened) noexcept;
    bool bring_neighbours(Neighbours& opened, Event event, State next) noexcept;
    void became_mapped(Object& object) noexcept;
    void take_neighbours(Run& run, const Stretch& stretch, Event event, State next) noexcept;
    void map_pages(const Run& run) noexcept;
    void want_helpers(const Object& object) noexcept;
    void start_helpers() noexcept;
    CUresult bring(const Run& run, Event event, State next, bool unordered, std::size_t& fetched) noexcept;
    std::size_t write_in_block(Object& object, std::uintptr_t at, const std::byte* from, std::size_t bytes,
                               const void* caller) noexcept;
    std::size_t overwrite_blocks(Object& object, std::uint32_t serial, std::uint32_t first, std::size_t bytes,
                                 Source& source) noexcept;
    bool lock_if_missing(Object& object, std::uint32_t index) const noexcept;
    std::uint32_t open_arrived(Object& object, const Stretch& stretch, std::size_t& fetched) noexcept;
    void fetch_ahead(Object& object, const Stretch& stretch) noexcept;
    bool coarsen(Object& object, std::uint32_t serial, bool unordered) noexcept;
    bool bring_whole(Object& object, std::uint32_t count, bool unordered) noexcept;
    void evict(const RunRef& ref) noexcept;
    void became_valid(Object& object, std::uint32_t blocks) noexcept;
    void list_host_valid(Object& object) noexcept;
    // The CPU made the run Dirty. With none of its blocks locked: evictions wait for blocks.
    void became_dirty(const RunRef& run, bool again) noexcept;
    // The caller has locked the loan's block. end_loan() makes it Invalid; on an error nothing changes.
    CUresult send_changes(const Loan& loan) noexcept;
    CUresult end_loan(Loan& loan) noexcept;
    CUresult end_loans_of(Object& object, BlockRange locked, bool unordered) noexcept;
    void drop_loans_of(Object& object) noexcept;
    void end_loan_at(std::size_t place) noexcept;
    CUresult wait_in_order() noexcept;

    CUresult release_all(const CUstream* stream);
    CUresult apply_to_range(DeviceRange range, Event event, const CUstream* stream);
    CUresult apply_to_blocks(DeviceRange range, Event event, const CUstream* stream);
    template <class Find, class Choose>
    CUresult apply_to(Find&& find, Choose&& event_of, const CUstream* stream) noexcept HPE_REQUIRES(apply_);
    template <class Choose>
    CUresult apply(std::span<Object* const> objects, Choose&& event_of, const CUstream* stream) HPE_REQUIRES(apply_);
    template <class Choose>
    bool lock_concerned(std::span<Object* const> objects, Choose&& event_of) HPE_REQUIRES(apply_);
    CUresult close_and_flush() HPE_REQUIRES(apply_);
    CUresult let_wait(CUresult applied, const CUstream* stream);
    CUresult await_flushes(bool stream_waits);
    CUresult settle_flushes() noexcept;

    Protocol* protocol_ = nullptr;
    SpinLock dirty_runs_;  // what the protocol knows of them
    std::size_t block_size_ = 0;
    ObjectTable<Object> table_;
    std::atomic<std::uint64_t> objects_made_{0};
    // The object that was freed last without a touch, with its view: a program that allocates and frees again and again
    // gets the same addresses each time, and needs no other.
    std::atomic<Object*> last_freed_{nullptr};
    std::atomic<std::size_t> allocations_{0};  // that the program has
    // What every launch reads, in one cache line.
    alignas(64) std::atomic<std::uint32_t> host_valid_objects_{0};  // one more while a stream waits for flushes
    std::atomic<bool> callbacks_{false}, page_open_{false}, ever_mapped_{false};
    std::atomic<CUresult> sticky_error_{CUDA_SUCCESS};
    std::atomic<std::uintptr_t> lowest_{UINTPTR_MAX}, highest_{0};  // objects, and what look_at() was told
    LaunchGate launch_gate_;
    std::atomic<std::uint64_t> loans_sent_{0};       // flushes of borrowed blocks, made by launches and copies
    std::atomic<unsigned> ending_{0}, ends_{0};      // Endings that are under way, and that are over
    std::atomic<Object*> host_valid_list_{nullptr};  // objects with host-valid blocks
    Mutex regions_;                                  // which allocations are in which region
    // Doors change the states of several blocks at once: no object is freed while another door has locked its blocks.
    // Never taken in the fault path, and with signals blocked (SignalsBlocked), so that no handler faults under it.
    Mutex apply_;
    std::atomic<bool> no_regions_{false};  // the driver does not place small allocations in whole chunks
    bool regions_possible_ HPE_GUARDED_BY(regions_) = false;  // it does
    SpinLock mapping_;                                        // one shadow is mapped at a time
    // A fault wants helper threads near the device of the object at this address.
    std::atomic<std::uintptr_t> helpers_wanted_{0};
    // Streams wait for flushes, and the CPU has not waited: an Invalid block may still be on its way to the device.
    // Changed under flushes_.
    std::atomic<bool> streams_wait_{false};
    SpinLock flushes_;
};

extern constinit Coherence the_coherence;
inline Coherence& coherence() noexcept { return the_coherence; }
// Never destroyed: threads may still fault while the process exits.
static_assert(std::is_trivially_destructible_v<Coherence>);

}  // namespace hpe
