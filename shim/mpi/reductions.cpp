// SPDX-License-Identifier: MIT
// Who takes part, what the ranks agree on, and the two steps.
#include "shim/mpi/reductions.h"

#include <unistd.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "shim/base/active.h"
#include "shim/base/log.h"
#include "shim/coherence/coherence.h"
#include "shim/copies/own_work.h"
#include "shim/copies/reducing.h"
#include "shim/ipc/exports.h"
#include "shim/ipc/remote_read.h"
#include "shim/mpi/call_buffers.h"
#include "shim/mpi/device_messages.h"
#include "shim/mpi/elements.h"
#include "shim/mpi/job.h"
#include "shim/mpi/world_ranks.h"
#include "shim/observe/trace.h"

namespace hpe::mpi::HPE_MPI_ABI::reductions {

namespace {

constexpr std::size_t kMostRanks = 16;
static_assert(kMostRanks <= kMostPeers);

// --- who takes part --------------------------------------------------------------------------------------------------

// Of communicators: their State. Written once, by enters().
constinit std::atomic<int> key{MPI_KEYVAL_INVALID};

// What a communicator is known by, as an attribute of it. One that has had no large call has none.
enum class State : std::uintptr_t { Called = 1, Alike, NotAlike };

// When MPI copies it, where a duplicate is made in the background, is MPI's own affair, and need not be alike.
int not_for_copies(MPI_Comm, int, void*, void*, void*, int* flag) {
    *flag = 0;
    return MPI_SUCCESS;
}
int ended(MPI_Comm, int, void*, void*) { return MPI_SUCCESS; }

bool enters() noexcept {
    int initialized = 0, rank = 0, size = 0, keyval = MPI_KEYVAL_INVALID;
    MPI_Comm parent{};
    if (!process::active.load(std::memory_order_acquire) || !enabled.load(std::memory_order_relaxed) ||
        !ipc::by_handles() || functions.MPI_Initialized(&initialized) != MPI_SUCCESS || initialized == 0 ||
        knows_cuda() || functions.MPI_Comm_get_parent(&parent) != MPI_SUCCESS || parent != handles.no_comm ||
        functions.MPI_Comm_rank(handles.world, &rank) != MPI_SUCCESS ||
        functions.MPI_Comm_size(handles.world, &size) != MPI_SUCCESS ||
        functions.MPI_Comm_create_keyval(not_for_copies, ended, &keyval, nullptr) != MPI_SUCCESS) {
        return false;
    }
    key.store(keyval, std::memory_order_relaxed);
    return job::enter(rank, size);
}

bool takes_part() noexcept {
    static const bool entered = enters();  // a child of fork() has its parent's
    return entered && process::active.load(std::memory_order_relaxed);
}

bool set(MPI_Comm comm, State state) noexcept {
    return functions.MPI_Comm_set_attr(comm, key.load(std::memory_order_relaxed), reinterpret_cast<void*>(state)) ==
           MPI_SUCCESS;
}

bool all_entered(MPI_Comm comm) noexcept {
    int inter = 0, size = 0;
    std::array<int, kMostRanks> ranks;
    if (functions.MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter != 0 ||
        functions.MPI_Comm_size(comm, &size) != MPI_SUCCESS || size < 2 ||
        static_cast<std::size_t>(size) > ranks.size()) {
        return false;
    }
    const std::span<int> all(ranks.data(), static_cast<std::size_t>(size));
    return peers(comm, all) && std::all_of(all.begin(), all.end(), job::has);
}

// Nothing: the state cannot be kept, and the ranks would do different things.
std::optional<State> state_of(MPI_Comm comm) noexcept {
    void* value = nullptr;
    int any = 0;
    if (functions.MPI_Comm_get_attr(comm, key.load(std::memory_order_relaxed), &value, &any) != MPI_SUCCESS) {
        return std::nullopt;
    }
    if (any == 0) return set(comm, State::Called) ? std::optional(State::Called) : std::nullopt;
    auto state = static_cast<State>(reinterpret_cast<std::uintptr_t>(value));
    if (state != State::Called) return state;
    state = all_entered(comm) ? State::Alike : State::NotAlike;
    return set(comm, state) ? std::optional(state) : std::nullopt;
}

// --- what the ranks tell each other ----------------------------------------------------------------------------------

// Plain bytes.
struct Offer {
    std::int64_t process;
    std::int64_t count;
    reducing::Reduction reduction;
    bool ready;  // else nothing else counts
    ipc::SharedMemory from, to;
};

std::optional<reducing::Reduction> reduction_of(MPI_Datatype type, MPI_Op op, int ranks) noexcept {
    const auto number = std::find_if(std::begin(arithmetic.numbers), std::end(arithmetic.numbers),
                                     [&](const auto& known) { return known.type == type; });
    const auto operation = std::find_if(std::begin(arithmetic.operations), std::end(arithmetic.operations),
                                        [&](const auto& known) { return known.op == op; });
    if (type == handles.no_type || number == std::end(arithmetic.numbers) ||
        operation == std::end(arithmetic.operations)) {
        return std::nullopt;
    }
    const auto bytes = Shape(type).bytes();
    if (bytes != 4 && bytes != 8) return std::nullopt;
    using enum reducing::Operation;
    const auto what = operation->operation;
    switch (number->numbers) {
        case reducing::Numbers::Signed: break;
        case reducing::Numbers::Unsigned:
            // MPICH 4.0 takes them for signed ones there, as Open MPI 4.1 does the long ones.
            if (what == Least || what == Greatest) return std::nullopt;
            break;
        case reducing::Numbers::Floating:
            // Of two numbers the order does not count. The processor may be told to round otherwise than the device.
            constexpr unsigned kRounding = 0x6000, kSubnormalsAreZero = 0x8040;
            if ((what != Sum && what != Product) || ranks != 2 ||
                (_mm_getcsr() & (kRounding | kSubnormalsAreZero)) != 0) {
                return std::nullopt;
            }
    }
    return reducing::Reduction{number->numbers, static_cast<std::uint8_t>(bytes), what};
}

// This rank's side of one call.
class Call {
public:
    Call(const void* from, void* to, MPI_Count count, MPI_Comm comm) noexcept
        : in_place_(from == MPI_IN_PLACE),
          to_(reinterpret_cast<std::uintptr_t>(to)),
          from_(in_place_ ? to_ : reinterpret_cast<std::uintptr_t>(from)),
          count_(static_cast<std::size_t>(count)),
          comm_(comm) {
        int ranks = 0;
        functions.MPI_Comm_rank(comm, &rank_);
        functions.MPI_Comm_size(comm, &ranks);
        ranks_ = static_cast<std::size_t>(ranks);
    }
    std::optional<int> make(MPI_Datatype type, MPI_Op op) noexcept;

private:
    // Whether every rank says yes; an error of MPI's ends the call.
    bool agree(bool yes) noexcept {
        std::array<char, kMostRanks> all;
        const char own = yes ? 1 : 0;
        error_ = functions.MPI_Allgather(&own, 1, handles.byte, all.data(), 1, handles.byte, comm_);
        return error_ == MPI_SUCCESS && std::all_of(all.begin(), all.begin() + ranks(), [](char c) { return c == 1; });
    }
    bool offer(MPI_Datatype type, MPI_Op op) noexcept;
    bool open() noexcept;
    bool combine() noexcept;
    bool collect() noexcept;
    std::ptrdiff_t ranks() const noexcept { return static_cast<std::ptrdiff_t>(ranks_); }
    std::size_t bytes() const noexcept { return count_ * reduction().bytes; }
    const reducing::Reduction& reduction() const noexcept { return offers_[own()].reduction; }
    std::size_t own() const noexcept { return static_cast<std::size_t>(rank_); }
    // The others, beginning behind this one, so that not all read from the same.
    std::size_t other(std::size_t n) const noexcept { return (own() + n) % ranks_; }

    // The part that a rank combines, in elements. Parts begin at whole pages of the buffer.
    struct Range {
        std::size_t begin, end;
    };
    Range part_of(std::size_t rank) const noexcept {
        constexpr std::size_t kStep = 4096;
        const auto each = ((count_ + ranks_ - 1) / ranks_ + kStep - 1) / kStep * kStep;
        return {std::min(count_, rank * each), std::min(count_, (rank + 1) * each)};
    }

    const bool in_place_;
    const std::uintptr_t to_, from_;
    const std::size_t count_;
    const MPI_Comm comm_;
    int rank_ = 0, error_ = MPI_SUCCESS;
    std::size_t ranks_ = 0;
    void* context_ = nullptr;
    std::array<Offer, kMostRanks> offers_{};
    // Where their buffers are in this process.
    std::array<std::uintptr_t, kMostRanks> from_at_{}, to_at_{};
};

// All that can fail here fails now.
bool Call::offer(MPI_Datatype type, MPI_Op op) noexcept {
    auto& own = offers_[this->own()];
    own.process = getpid();
    own.count = static_cast<std::int64_t>(count_);
    const auto reduction = reduction_of(type, op, static_cast<int>(ranks_));
    if (!reduction || !any_objects()) return false;
    own.reduction = *reduction;
    const auto lies_in = [&](std::uintptr_t at) -> const Object* {
        const Object* const object = coherence().object_of(at);
        const bool inside = object != nullptr && bytes() <= object->bytes_from(at);
        return inside && at % reduction->bytes == 0 && mostly_on_device(at, bytes()) ? object : nullptr;
    };
    const Object* const from = lies_in(from_);
    const Object* const to = lies_in(to_);
    // Else MPI has something to say.
    const bool apart = in_place_ || from_ + bytes() <= to_ || to_ + bytes() <= from_;
    if (from == nullptr || to == nullptr || from->context != to->context || !apart) return false;
    context_ = to->context;
    const auto shared_from = ipc::shared(from_), shared_to = ipc::shared(to_);
    if (!shared_from || !shared_to) return false;
    own.from = *shared_from;
    own.to = *shared_to;
    return reducing::prepare(*reduction, context_, {from_, bytes()});
}

bool Call::open() noexcept {
    from_at_[own()] = from_;
    to_at_[own()] = to_;
    for (std::size_t n = 1; n < ranks_; ++n) {
        const auto rank = other(n);
        const auto process = static_cast<pid_t>(offers_[rank].process);
        from_at_[rank] = ipc::opened(process, offers_[rank].from, context_);
        to_at_[rank] = ipc::opened(process, offers_[rank].to, context_);
        if (from_at_[rank] == 0 || to_at_[rank] == 0) return false;
    }
    return true;
}

bool Call::combine() noexcept {
    const auto mine = part_of(own());
    const auto offset = mine.begin * reduction().bytes;
    std::array<reducing::Operands, kMostRanks> all;
    for (std::size_t n = 1; n < ranks_; ++n) {
        const auto so_far = (n == 1 ? from_ : to_) + offset, more = from_at_[other(n)] + offset;
        // Of two NaNs the lower rank's comes out, in all parts.
        all[n - 1] = other(n) < own() ? reducing::Operands{to_ + offset, more, so_far}
                                      : reducing::Operands{to_ + offset, so_far, more};
    }
    return reducing::combine(reduction(), context_, {all.data(), ranks_ - 1}, mine.end - mine.begin, {from_, bytes()},
                             {to_, bytes()});
}

bool Call::collect() noexcept {
    std::array<reducing::Piece, kMostRanks> all;
    for (std::size_t n = 1; n < ranks_; ++n) {
        const auto theirs = part_of(other(n));
        const auto offset = theirs.begin * reduction().bytes;
        all[n - 1] = {to_ + offset, to_at_[other(n)] + offset, (theirs.end - theirs.begin) * reduction().bytes};
    }
    return reducing::copy(context_, {all.data(), ranks_ - 1}, {to_, bytes()});
}

std::optional<int> Call::make(MPI_Datatype type, MPI_Op op) noexcept {
    const bool ready = offer(type, op);
    auto own = offers_[this->own()];
    own.ready = ready;
    constexpr int kBytes = sizeof(Offer);
    error_ = functions.MPI_Allgather(&own, kBytes, handles.byte, offers_.data(), kBytes, handles.byte, comm_);
    if (error_ != MPI_SUCCESS) return error_;
    const bool all_ready = std::all_of(offers_.begin(), offers_.begin() + ranks(), [&](const Offer& one) {
        return one.ready && one.reduction == offers_[0].reduction && one.count == offers_[0].count;
    });
    if (!all_ready) return std::nullopt;
    const Object* const object = coherence().object_of(to_);
    trace::Transfer traced(trace::Kind::Staging, "reduction between devices", bytes(),
                           object != nullptr ? object->report_id_at(to_ - object->base) : 0);
    if (!agree(open())) return error_ != MPI_SUCCESS ? std::optional(error_) : std::nullopt;
    // From now on buffers change. A rank whose device fails still answers, so that nobody waits for it.
    const bool made = agree(combine()) && agree(collect());
    if (error_ != MPI_SUCCESS) return error_;
    if (!made) {
        log::warn("a device cannot combine what MPI_Allreduce was given");
        return kFailed;
    }
    traced.done();
    return MPI_SUCCESS;
}

}  // namespace

std::optional<int> all_reduce(const void* from, void* to, MPI_Count count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm) noexcept {
    if (comm == handles.no_comm || !takes_part()) return std::nullopt;
    const auto state = state_of(comm);
    if (!state) return kFailed;
    if (*state != State::Alike) return std::nullopt;
    return Call(from, to, count, comm).make(type, op);
}

}  // namespace hpe::mpi::HPE_MPI_ABI::reductions
