// SPDX-License-Identifier: MIT
// What every MPI door is made of: the library's own function, and the order of things around a call with buffers in
// objects. mpi_catalog.inc says for each function which kind of door it has, and which of its arguments are buffers.
//
// Doors stand where calls enter the MPI library (mpi_imports.h): a tool in front of it sees the program's own pointers,
// and what the library calls itself is not seen here. Threads: any that may call MPI. Errors: MPI's; MPI_ERR_OTHER on
// MPI_COMM_SELF where a buffer cannot be replaced, or what came cannot be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shim/mpi/call_buffers.h"
#include "shim/mpi/held.h"
#include "shim/mpi/pending.h"

namespace hpe::doors::HPE_MPI_ABI {

using namespace hpe::mpi::HPE_MPI_ABI;
using hpe::mpi::any_objects;

// The rows of the catalogue.
enum Row : std::size_t {
#define MPI_DOOR_LIKE(other, name, kind, treatment) row_##name,
#define MPI_OWN_DOOR(name, door) row_##name,
#include "shim/doors/mpi_catalog.inc"
    kRows
};
// The library's own functions.
extern void* own_functions[kRows];
template <class Function>
Function* own(std::size_t row) noexcept {
    return reinterpret_cast<Function*>(own_functions[row]);
}

enum class Kind {
    Whole,           // all of what it writes is there when it returns
    Sends,           // the same, of a call that brings no news of other ranks
    Broadcast,       // the same, of a collective call in which no rank copies from one of its buffers to another
    Collective,      // the same, of one in which ranks may
    Receives,        // as much as the status says, which is the last argument
    Begins,          // the same when the request completes, which is the last argument
    BeginsInWindow,  // or when the window, which comes before it, is synchronised
    BeginsReceive,
    BeginsRead,  // from a file
    Prepares,    // as Begins, each time the request is started
    PreparesReceive,
    HoldsForWindow,  // when the window, which is the last argument, is synchronised
    HoldsForFile,    // with the second half of the access; the file is the first argument
};
// Whether the program may learn, when the call returns, what another rank has done: that freed receives have come, say.
constexpr bool tells_of_others(Kind kind) noexcept {
    return kind == Kind::Whole || kind == Kind::Broadcast || kind == Kind::Collective || kind == Kind::Receives;
}
constexpr Arrives arrives(Kind kind) noexcept {
    if (kind == Kind::BeginsRead) return Arrives::FromFile;
    return kind == Kind::BeginsReceive || kind == Kind::PreparesReceive ? Arrives::Message : Arrives::All;
}

inline int cannot() noexcept {
    functions.MPI_Comm_call_errhandler(handles.self, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

template <class... A>
auto& last(A&... arguments) noexcept {
    return std::get<sizeof...(A) - 1>(std::tie(arguments...));
}

inline bool ignored(const MPI_Status* status) noexcept { return status == MPI_STATUS_IGNORE; }

template <class Real, class... A>
int whole(const Real& real, CallBuffers& buffers, A... arguments) {
    const int result = real(arguments...);
    return result == MPI_SUCCESS && !buffers.store() ? cannot() : result;
}

template <class Real, class... A>
int receives(const Real& real, CallBuffers& buffers, A... arguments) {
    MPI_Status own{};
    MPI_Status*& status = last(arguments...);
    if (ignored(status)) status = &own;
    const int result = real(arguments...);
    MPI_Count bytes = 0;
    if (result == MPI_SUCCESS && functions.MPI_Get_elements_x(status, handles.byte, &bytes) == MPI_SUCCESS &&
        !buffers.store(bytes)) {
        return cannot();
    }
    return result;
}

template <Kind kind, class Real, class... A>
int begins(const Real& real, CallBuffers&& buffers, A... arguments) {
    constexpr bool kPersistent = kind == Kind::Prepares || kind == Kind::PreparesReceive;
    PendingPointer pending;
    if (buffers.pends()) {
        pending.reset(new (std::nothrow) Pending(std::move(buffers), arrives(kind), kPersistent));
        if (pending == nullptr || !Partitions::make(pending->buffers, pending->partitions)) return cannot();
        if constexpr (kind == Kind::BeginsInWindow) {
            pending->window = std::get<sizeof...(A) - 2>(std::tie(arguments...));
        }
    }
    const int result = real(arguments...);
    if (result != MPI_SUCCESS || pending == nullptr || pending::add(std::move(pending), *last(arguments...)))
        return result;
    functions.MPI_Request_free(last(arguments...));
    return cannot();
}

template <class Real, class... A>
int holds(const Real& real, CallBuffers&& buffers, hpe::mpi::ShortList<HeldCall>& calls, std::uintptr_t handle,
          A... arguments) {
    std::unique_ptr<HeldCall> call;
    if (buffers.pends()) {
        call.reset(new (std::nothrow) HeldCall(std::move(buffers)));
        if (call == nullptr) return cannot();
        call->handle = handle;
    }
    const int result = real(arguments...);
    if (result == MPI_SUCCESS && call != nullptr) {
        call->buffers.keep_types();
        if (&calls == &of_windows) call->number = next_window_call();
        calls.add(call.release());
    }
    return result;
}

// The treatment names the arguments that are buffers, which may be replaced.
template <Kind kind, class Treatment, class Real, class... A>
[[gnu::noinline]] int staged(const Real& real, const void* caller, A... arguments) {
    constexpr bool kPersistent = kind == Kind::Prepares || kind == Kind::PreparesReceive;
    constexpr auto kCopies = kind == Kind::Collective ? Copies::WithinRanks : Copies::BetweenRanks;
    CallBuffers buffers(caller, kPersistent);
    if constexpr (kind == Kind::Broadcast || kind == Kind::Collective) buffers.is_collective(kCopies);
    Treatment{}(buffers, arguments...);
    if (buffers.failed()) return cannot();
    int result = MPI_SUCCESS;
    if (!buffers.any()) {
        result = real(arguments...);
    } else if constexpr (kind == Kind::Sends || kind == Kind::Whole || kind == Kind::Broadcast ||
                         kind == Kind::Collective) {
        result = whole(real, buffers, arguments...);
    } else if constexpr (kind == Kind::Receives) {
        result = receives(real, buffers, arguments...);
    } else if constexpr (kind == Kind::HoldsForWindow) {
        result = holds(real, std::move(buffers), of_windows, number(last(arguments...)), arguments...);
    } else if constexpr (kind == Kind::HoldsForFile) {
        result = holds(real, std::move(buffers), of_files, number(std::get<0>(std::tie(arguments...))), arguments...);
    } else {
        result = begins<kind>(real, std::move(buffers), arguments...);
    }
    pending::completed();
    return result;
}

// Of calls that a program makes by the million, most with host memory.
constexpr bool is_frequent(Kind kind) noexcept {
    return tells_of_others(kind) || kind == Kind::Sends || kind == Kind::Begins || kind == Kind::BeginsReceive;
}

template <Kind kind, class Treatment, class Real, class... A>
[[gnu::noinline]] int looked_at(Real real, const void* caller, A... arguments) {
    if constexpr (requires(Look & look) { Treatment{}(look, arguments...); }) {
        Look look;
        Treatment{}(look, arguments...);
        if (!look.found_any()) {
            const int result = real(arguments...);
            pending::completed();
            return result;
        }
    }
    return staged<kind, Treatment>(real, caller, arguments...);
}

template <Kind kind, class Treatment, class Real, class... A>
[[gnu::always_inline]] inline int treated(Real real, const void* caller, A... arguments) {
    if (!any_objects()) return real(arguments...);
    if constexpr (is_frequent(kind) && requires(Glance & glance) { Treatment{}(glance, arguments...); }) {
        Glance glance;
        Treatment{}(glance, arguments...);
        if (!glance.found_any()) {
            if constexpr (!tells_of_others(kind)) return real(arguments...);
            const int result = real(arguments...);
            pending::completed();
            return result;
        }
    }
    return looked_at<kind, Treatment>(real, caller, arguments...);
}

template <std::size_t row, Kind kind, class Treatment, class Function>
struct Made;
template <std::size_t row, Kind kind, class Treatment, class... A>
struct Made<row, kind, Treatment, int(A...)> {
    // Without the attribute the compiler, which limits how much a file may grow, calls functions of a few instructions.
    [[gnu::flatten]] static int door(A... arguments) {
        return treated<kind, Treatment>(own<int(A...)>(row), __builtin_return_address(0), arguments...);
    }
};

}  // namespace hpe::doors::HPE_MPI_ABI
