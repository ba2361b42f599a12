// SPDX-License-Identifier: MIT
// The buffers of one MPI call: those that lie in objects are replaced by memory that MPI and a network card may use for
// as long as they like. What MPI reads becomes the view, with its blocks valid on the host, or a copy; what it writes
// becomes bounce memory of the same layout (in the call's own window its public copy, window_copies.h), which is stored
// as the CPU would store it when MPI has finished: exactly the bytes that the datatypes name.
//
// The buffers of messages may become packed bytes instead: what MPI itself would make of elements with gaps, made on
// the device where the elements lie there (copies/packing.h). MPI is given MPI_BYTE then. On the wire that is the same
// message, and a status counts bytes whatever the type was.
//
// Packed bytes may stay on the device, in an object of libhpe's own, which is then sent or received in their place.
//
// An MPI that moves device memory by itself (device_messages.h) is lent the program's object, or gets such a copy of it
// if the CPU uses it, too.
//
// Large messages between processes of one host may go from device to device (ipc/remote_read.h): what is sent is
// exported while it is under way, and what is received is expected. Once a receiver was seen to read an object from the
// device, or from host memory that both processes pin, MPI is given the object's own address.
//
// Nothing of an object is held meanwhile. Source: thesis section 5.3.
//
// Threads: each for one at a time. Buffers, types and arrays are the program's. Errors: failed() is true where there is
// no memory, or the device cannot give its bytes; the call is not to be made then. What came and cannot be stored is an
// error of the call that ends the transfer. Each says so in one line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "shim/base/active.h"
#include "shim/base/address.h"
#include "shim/coherence/coherence.h"
#include "shim/copies/layout.h"
#include "shim/copies/lent.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/remote_read.h"
#include "shim/mpi/device_memory.h"
#include "shim/mpi/elements.h"
#include "shim/mpi/host_memory.h"
#include "shim/mpi/window_copies.h"
#include "shim/observe/call_stacks.h"

namespace hpe::mpi {

// Whether any buffer can lie in memory that is to be replaced: a few loads.
inline bool any_objects() noexcept { return lease::any() && enabled.load(std::memory_order_relaxed); }

}  // namespace hpe::mpi

namespace hpe::mpi::HPE_MPI_ABI {

// The elements of one buffer: most calls have one sort, v- and w-forms as many as there are ranks.
class Parts {
public:
    Parts() noexcept = default;
    explicit Parts(std::size_t most) noexcept;  // without memory ok() is false
    Parts(const void* at, MPI_Count count, MPI_Datatype type) noexcept {
        if (count > 0) add(address(at), count, type, Shape(type));
    }
    Parts(Parts&& other) noexcept;
    Parts& operator=(Parts&&) = delete;
    bool ok() const noexcept { return ok_; }
    bool empty() const noexcept { return count_ == 0; }
    void add(std::uintptr_t at, MPI_Count count, MPI_Datatype type, const Shape& shape) noexcept;
    const Elements* begin() const noexcept { return list(); }
    const Elements* end() const noexcept { return list() + count_; }
    Elements* begin() noexcept { return many_ ? many_.get() : &one_; }
    Elements* end() noexcept { return begin() + count_; }
    Span span() const noexcept { return span_; }

private:
    const Elements* list() const noexcept { return many_ ? many_.get() : &one_; }
    Elements one_;
    std::unique_ptr<Elements[]> many_;
    std::size_t count_ = 0;
    Span span_;
    bool ok_ = true;
};

// Finds out whether any buffer of a call may lie in an object: most have none there, and pay for no CallBuffers.
class Look {
public:
    void reads(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void writes(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void updates(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void sends(const void* at, MPI_Count count, MPI_Datatype type, int, MPI_Comm) noexcept { buffer(at, count, type); }
    void receives(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void exchanges(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void reads(const void*, Span parts) noexcept { buffer(parts); }
    void writes(const void*, Span parts) noexcept { buffer(parts); }
    void updates(const void*, Span parts) noexcept { buffer(parts); }
    // The types of the buffers that follow may be none, so MPI is not asked about them.
    void may_be_insignificant() noexcept { may_ask_ = false; }
    bool found_any() const noexcept { return found_any_; }

protected:
    void found() noexcept { found_any_ = true; }

private:
    void buffer(const void* at, MPI_Count count, MPI_Datatype type) noexcept {
        if (count > 0 && may_concern(at, count, type, may_ask_)) found_any_ = true;
    }
    // Of all parts, and so of what lies between them.
    void buffer(Span parts) noexcept {
        if (concerns(parts)) found_any_ = true;
    }
    bool found_any_ = false, may_ask_ = true;
};

// The same by a few loads, so that the arguments of the program's call stay in their registers: true wherever these do
// not suffice to say no. Only arrays of counts are looked at as by a Look.
class Glance : public Look {
public:
    using Look::reads, Look::writes, Look::updates;
    void reads(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void writes(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void updates(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void sends(const void* at, MPI_Count count, MPI_Datatype type, int, MPI_Comm) noexcept { buffer(at, count, type); }
    void receives(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }
    void exchanges(const void* at, MPI_Count count, MPI_Datatype type) noexcept { buffer(at, count, type); }

private:
    [[gnu::always_inline]] void buffer(const void* at, MPI_Count count, MPI_Datatype type) noexcept {
        if (count <= 0) return;
        const Shape* const known = known_shapes.find(type);
        if (known == nullptr) return found();
        const auto span = known->span(address(at), count);
        if (lease::may_concern(pointer(span.begin), span.bytes())) found();
    }
};

// In a blocking collective call: whether a rank also copies from one of its buffers to the other.
enum class Copies : std::uint8_t { BetweenRanks, WithinRanks };

class CallBuffers {
public:
    // `lasting`: for a persistent request, whose buffers are read each time it is started.
    explicit CallBuffers(const void* caller, bool lasting = false) noexcept;
    CallBuffers(CallBuffers&& other) noexcept;
    ~CallBuffers();
    CallBuffers& operator=(const CallBuffers&) = delete;

    // Its buffers may be left to an MPI that moves device memory by itself.
    void is_collective(Copies copies) noexcept { collective_ = copies; }

    // Each takes the argument of the call, and changes it if it lies in an object. An updated buffer is read and
    // written; so are those of which MPI may leave parts as they were.
    template <class Pointer>
    void reads(Pointer& at, MPI_Count count, MPI_Datatype type) noexcept {
        take(at, parts_of(at, count, type), Use::Read);
    }
    void writes(void*& at, MPI_Count count, MPI_Datatype type) noexcept {
        take(at, parts_of(at, count, type), Use::Write);
    }
    void updates(void*& at, MPI_Count count, MPI_Datatype type) noexcept {
        take(at, parts_of(at, count, type), Use::Update);
    }
    // What comes into this rank's part of the call's own window, if all of it does (window_copies.h). `window`:
    // nullptr, or lives until the buffers are stored.
    void writes(void*& at, MPI_Count count, MPI_Datatype type, WindowCopy* window) noexcept;
    template <class Pointer>
    void reads(Pointer& at, Parts&& parts) noexcept {
        take_any(at, std::move(parts), Use::Read);
    }
    void writes(void*& at, Parts&& parts) noexcept { take_any(at, std::move(parts), Use::Write); }
    void updates(void*& at, Parts&& parts) noexcept { take_any(at, std::move(parts), Use::Update); }

    // The same for messages, of which count and type may change, too.
    template <class Pointer, class Count>
    void sends(Pointer& at, Count& count, MPI_Datatype& type, int to, MPI_Comm comm) noexcept {
        receiver_ = {to, comm};
        take_message(at, count, type, Use::Send);
    }
    template <class Count>
    void receives(void*& at, Count& count, MPI_Datatype& type) noexcept {
        take_message(at, count, type, Use::Receive);
    }
    template <class Count>
    void exchanges(void*& at, Count& count, MPI_Datatype& type) noexcept {
        take_message(at, count, type, Use::Update);
    }

    // The same for a request in partitions of `count` elements each, which are loaded and stored one by one: any
    // threads may do so, for partitions of their own. Not before the request has started, as the program fills them
    // later.
    template <class Pointer>
    void reads_partitions(Pointer& at, int partitions, MPI_Count count, MPI_Datatype type) noexcept {
        take_partitions(at, partitions, count, type, Use::Read);
    }
    void writes_partitions(void*& at, int partitions, MPI_Count count, MPI_Datatype type) noexcept {
        take_partitions(at, partitions, count, type, Use::Write);
    }
    int partitions() const noexcept { return partitions_; }
    bool load_partition(int partition) noexcept;
    bool store_partition(int partition) noexcept;

    // Of a one-sided call: where the other side is.
    void between(int rank) noexcept { other_rank_ = rank; }
    int other_rank() const noexcept { return other_rank_; }

    bool failed() const noexcept { return failed_; }
    // Something was replaced.
    bool any() const noexcept { return count_ != 0; }
    // Memory or an action is needed when MPI has finished.
    bool pends() const noexcept;
    // MPI may have finished, but a device has not: it copies the bytes of a message.
    bool copies_under_way() const noexcept;
    // A buffer is lent to the MPI.
    bool left_to_mpi() const noexcept;
    // The program may end its types before MPI has finished.
    void keep_types() noexcept;
    // A persistent request is started: what is read is brought anew. False: it is not to be started.
    bool load() noexcept;

    // MPI has finished: all bytes came, or so many of the one buffer that is written. False: not all could be stored.
    bool store() noexcept;
    bool store(MPI_Count bytes) noexcept;

private:
    // Send and Receive: of a message that only these two processes read and write.
    enum class Use { Read, Write, Update, Send, Receive };
    static bool is_read(Use use) noexcept { return use == Use::Read || use == Use::Send; }
    static bool is_written(Use use) noexcept { return use == Use::Write || use == Use::Receive; }
    static bool is_message(Use use) noexcept { return use == Use::Send || use == Use::Receive; }
    struct Buffer {
        Use use = Use::Read;
        Parts parts;
        std::unique_ptr<HostMemory> memory{};
        std::uintptr_t shift = 0;
        // Of one element; then `memory` holds packed bytes.
        std::optional<Layout> layout{};
        // Elements whose packed bytes lie in device memory of ours: `parts` are these bytes, if MPI does not get them.
        struct Packed {
            DeviceMemory memory;
            Elements elements;
            Layout layout;  // of one element
        };
        std::unique_ptr<Packed> packed{};
        std::optional<Lent> lent{};              // to MPI; ends before its memory
        std::unique_ptr<ipc::Export> message{};  // so does this
        std::unique_ptr<ipc::Arrival> arrival{};
        bool left_there = false;       // on the device, where the message's receiver reads it
        WindowCopy* window = nullptr;  // MPI writes there
    };
    struct Receiver {
        int rank;
        MPI_Comm comm;
    };
    // None where the type names no byte of an object: of most calls that is all.
    Parts parts_of(const void* at, MPI_Count count, MPI_Datatype type) const noexcept {
        Parts parts;
        if (count <= 0) return parts;
        const Shape shape(type);
        if (names_an_object({address(at), count, type, shape})) parts.add(address(at), count, type, shape);
        return parts;
    }
    template <class Pointer>
    void take(Pointer& at, Parts&& parts, Use use) noexcept {
        if (failed_ || parts.empty()) return;
        call_stacks::wait_was_needed();
        at = moved(at, replace(std::move(parts), use));
    }
    // Where it is not known yet whether they are in objects.
    template <class Pointer>
    void take_any(Pointer& at, Parts&& parts, Use use) noexcept {
        failed_ = failed_ || !parts.ok();
        if (std::any_of(parts.begin(), parts.end(), names_an_object)) take(at, std::move(parts), use);
    }
    template <class Pointer>
    static Pointer moved(Pointer at, std::uintptr_t by) noexcept {
        return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(at) + by);
    }
    template <class Pointer, class Count>
    void take_message(Pointer& at, Count& count, MPI_Datatype& type, Use use) noexcept {
        Parts parts = parts_of(at, count, type);
        if (failed_ || parts.empty()) return;
        call_stacks::wait_was_needed();
        if (std::byte* const packed = replace_packed(*parts.begin(), use); packed != nullptr) {
            at = packed;
            count = static_cast<Count>(count * parts.begin()->shape.bytes());
            type = handles.byte;
        } else if (!failed_) {
            at = moved(at, replace(std::move(parts), use));
        }
    }
    template <class Pointer>
    void take_partitions(Pointer& at, int partitions, MPI_Count count, MPI_Datatype type, Use use) noexcept {
        MPI_Count all = 0;
        if (partitions <= 0 || count <= 0 || __builtin_mul_overflow(count, MPI_Count{partitions}, &all)) return;
        const Shape shape(type);
        const auto first = reinterpret_cast<std::uintptr_t>(at);
        if (!concerns(shape.span(first, all))) return;
        Parts parts(static_cast<std::size_t>(partitions));
        for (MPI_Count done = 0; done < all; done += count) {
            parts.add(first + static_cast<std::uintptr_t>(done * shape.extent()), count, type, shape);
        }
        partitions_ = partitions;
        take_any(at, std::move(parts), use);
    }
    Buffer& add(Use use, Parts&& parts = {}) noexcept {
        return *new (begin() + count_++) Buffer{use, std::move(parts)};
    }
    // Returns the memory of packed bytes in their place; nullptr where they are replaced in the usual way.
    std::byte* replace_packed(const Elements& elements, Use use) noexcept;
    const Object* to_be_left_on_device(const Elements& elements, Use use) const noexcept;
    std::byte* pack_on_device(const Elements& elements, const Layout& layout, Use use) noexcept;
    static std::optional<Lent> lend(std::uintptr_t at, std::size_t bytes, Use use) noexcept;
    std::byte* leave_to_mpi(const Elements& elements, Use use) noexcept;
    bool leave_to_collective(const Parts& parts, Use use) noexcept;
    static bool leave_uncached(const Parts& parts, Use use) noexcept;
    // Returns how far the memory in its place lies from the program's. `settled`: what is sent lies on the device,
    // whose work has ended.
    std::uintptr_t replace(Parts&& parts, Use use, bool settled = false) noexcept;
    bool load(const Buffer& buffer) noexcept;
    bool load(const Buffer& buffer, const Elements& elements) noexcept;
    bool store(const Buffer& buffer, MPI_Count bytes) noexcept;
    bool unpack(const Buffer& buffer, MPI_Count bytes) noexcept;
    bool store_rest(const Buffer& buffer, std::size_t on_device, MPI_Count bytes) noexcept;
    bool leave_on_device(const Parts& parts, int to, bool settled) noexcept;
    bool send_as_it_comes(Buffer& buffer, int to) noexcept;
    bool may_go_past(const Parts& parts) const noexcept;
    int receiver_of(const Parts& parts) const noexcept;
    void share(Buffer& buffer, int to) noexcept;
    void wait_for_readers() const noexcept;
    bool store(const Buffer& buffer, const Elements& elements, MPI_Count bytes) noexcept;

    Buffer* begin() noexcept { return reinterpret_cast<Buffer*>(room_); }
    Buffer* end() noexcept { return begin() + count_; }
    const Buffer* begin() const noexcept { return reinterpret_cast<const Buffer*>(room_); }
    const Buffer* end() const noexcept { return begin() + count_; }

    const void* const caller_;
    const bool lasting_;
    bool failed_ = false;
    int other_rank_ = 0;
    Receiver receiver_{};
    std::optional<Copies> collective_;
    int partitions_ = 0;  // of the one buffer
    std::size_t count_ = 0;
    // Most calls have no buffer in an object, and do not pay for any.
    static constexpr std::size_t kMost = 3;
    alignas(Buffer) std::byte room_[kMost * sizeof(Buffer)];
};

}  // namespace hpe::mpi::HPE_MPI_ABI
