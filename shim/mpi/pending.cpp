// SPDX-License-Identifier: MIT
// The table of requests: a list for each of some hash values.
#include "shim/mpi/pending.h"

#include <array>
#include <cstdint>
#include <new>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/mpi/short_list.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

constinit std::array<ShortList<Pending>, 1024> lists;
constinit ShortList<Pending> freed_list;
// Memory for others.
struct Spare {
    Spare* next = nullptr;
};
constinit ShortList<Spare> spares;
constinit std::atomic<unsigned> spare_count{0};
// Taken by a call that completes requests, which may wait for others of them: a synchronisation of their window finds
// them here, and stores what came.
constinit ShortList<Pending> taken_of_windows;
constinit std::atomic<bool> any_in_windows{false};  // ever
constinit Mutex freed_mutex;                        // held while freed requests are looked at

ShortList<Pending>& list_of(MPI_Request request) noexcept {
    return lists[number(request) * 0x9E3779B97F4A7C15ull >> (64 - 10)];
}

// From here on nobody but the caller sees it.
void leave_taken(const Pending& pending) noexcept {
    if (pending.window) taken_of_windows.take([&](const Pending& one) { return &one == &pending; });
}

// MPICH 4.0 says that a call is done when its bytes are still to come, or to be read, where elements on either side
// have gaps. The other rank may have to help, so no lock is held.
void finish_in_window([[maybe_unused]] const Pending& pending) noexcept {
#ifndef OPEN_MPI
    if (pending.window) functions.MPI_Win_flush(pending.buffers.other_rank(), *pending.window);
#endif
}

bool store(Pending& pending, const MPI_Status& status) noexcept {
    if (pending.partitions != nullptr) return pending.partitions->finish();
    if (pending.arrives != Arrives::Message) return pending.buffers.store();
    int cancelled = 0;
    if (functions.MPI_Test_cancelled(&status, &cancelled) == MPI_SUCCESS && cancelled != 0) {
        return true;  // MPICH counts anything then
    }
    MPI_Count bytes = 0;
    return functions.MPI_Get_elements_x(&status, handles.byte, &bytes) != MPI_SUCCESS || bytes <= 0 ||
           pending.buffers.store(bytes);
}

}  // namespace

Pending::~Pending() { leave_taken(*this); }

void* Pending::operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    if (Spare* const spare = spares.take([](const Spare&) { return true; })) {
        spare_count.fetch_sub(1, std::memory_order_relaxed);
        return spare;
    }
    return ::operator new(bytes, std::nothrow);
}

void Pending::operator delete(void* memory) noexcept {
    constexpr unsigned kMostSpares = 256;
    if (spare_count.fetch_add(1, std::memory_order_relaxed) < kMostSpares) return spares.add(new (memory) Spare);
    spare_count.fetch_sub(1, std::memory_order_relaxed);
    ::operator delete(memory);
}

namespace pending {

constinit std::atomic<std::size_t> count{0}, freed{0};

bool add(PendingPointer pending, MPI_Request request) noexcept {
    pending->request = request;
    bool comes_later = pending->arrives == Arrives::Message;
#ifdef OPEN_MPI
    comes_later = comes_later || pending->arrives == Arrives::FromFile;
#endif
    // To ask drives the MPI on, which may be slow while its own copies are under way.
    if (!pending->persistent && !pending->buffers.left_to_mpi() && !comes_later) {
        int done = 0;
        MPI_Status status{};
        if (functions.MPI_Request_get_status(request, &done, &status) == MPI_SUCCESS && done != 0 &&
            !pending->buffers.copies_under_way()) {
            finish_in_window(*pending);
            return store(*pending, status);
        }
    }
    pending->buffers.keep_types();
    if (pending->window) {
        pending->number = next_window_call();
        any_in_windows.store(true, std::memory_order_release);
    }
    if (pending->partitions != nullptr) pending->partitions->made(request);
    give_back(std::move(pending));
    return true;
}

PendingPointer take(MPI_Request request) noexcept {
    const auto wanted = [&](const Pending& one) { return one.request == request; };
    PendingPointer found;
    if (!any_in_windows.load(std::memory_order_acquire)) {
        found.reset(list_of(request).take(wanted));
    } else {
        const Locked in_one_list_or_the_other(storing_of_windows);
        found.reset(list_of(request).take(wanted));
        if (found != nullptr && found->window) taken_of_windows.add(found.get());
    }
    if (found != nullptr) count.fetch_sub(1, std::memory_order_relaxed);
    return found;
}

void give_back(PendingPointer pending) noexcept {
    leave_taken(*pending);
    count.fetch_add(1, std::memory_order_relaxed);
    auto& list = list_of(pending->request);
    list.add(pending.release());
}

bool start(Pending& pending) noexcept {
    pending.started = pending.buffers.load();
    if (pending.started && pending.partitions != nullptr) pending.partitions->start();
    return pending.started;
}

void not_started(Pending& pending) noexcept {
    pending.started = false;
    if (pending.partitions != nullptr) pending.partitions->end();
}

bool settle(Pending& pending, const MPI_Status& status) noexcept {
    if (!pending.window) return !std::exchange(pending.started, false) || store(pending, status);
    const auto to_be_stored = [&](const Pending& one) { return &one == &pending && one.started; };
    if (taken_of_windows.find(to_be_stored) != nullptr) finish_in_window(pending);
    // A synchronisation of the window by another thread waits until all is stored, as does who finds it done.
    const Locked until_it_is_stored(storing_of_windows);
    leave_taken(pending);
    return !std::exchange(pending.started, false) || store(pending, status);
}

bool store_of_window(MPI_Win window, int rank, std::uint64_t last) noexcept {
    if (!any_in_windows.load(std::memory_order_acquire)) return true;
    bool all_stored = true;
    const auto store_of = [&](ShortList<Pending>& list) {
        std::optional<CallBuffers> came;
        const auto take_buffers = [&](Pending& one) {
            const bool wanted = one.window == window && one.number <= last && one.started &&
                                (rank == kAnyRank || one.buffers.other_rank() == rank);
            if (wanted) {
                came.emplace(std::move(one.buffers));
                one.started = false;
            }
            return wanted;
        };
        while (list.find(take_buffers) != nullptr) {
            all_stored = came->store() && all_stored;
            came.reset();  // not under the list's lock
        }
    };
    store_of(taken_of_windows);
    for (auto& list : lists) store_of(list);
    return all_stored;
}

bool complete(PendingPointer pending, const MPI_Status& status) noexcept {
    const bool stored = settle(*pending, status);
    fail(std::move(pending));
    return stored;
}

void fail(PendingPointer pending) noexcept {
    if (!pending->persistent) return;
    not_started(*pending);
    give_back(std::move(pending));
}

void keep_freed(PendingPointer pending) noexcept {
    count.fetch_add(1, std::memory_order_relaxed);
    freed_list.add(pending.release());
    freed.fetch_add(1, std::memory_order_release);
}

// A thread that finds nothing to do here may know by its own message that the bytes of a freed receive are there: so it
// waits for who has taken the list. MPI_Test may call the program's functions, which come here again.
void look_at_freed() noexcept {
    static thread_local bool looking = false;
    if (looking) return;
    const Locked by_one(freed_mutex);
    looking = true;
    Pending* list = nullptr;
    while (Pending* const one = freed_list.take([](const Pending&) { return true; }))
        one->next = std::exchange(list, one);
    while (list != nullptr) {
        PendingPointer one(std::exchange(list, list->next));
        int done = 0;
        MPI_Status status{};
        MPI_Request request = one->request;
        const int result = functions.MPI_Test(&request, &done, &status);
        if (done == 0) {
            freed_list.add(one.release());
            continue;
        }
        if (result == MPI_SUCCESS) store(*one, status);
        one->partitions.reset();
        if (one->persistent) functions.MPI_Request_free(&request);
        freed.fetch_sub(1, std::memory_order_release);
        count.fetch_sub(1, std::memory_order_relaxed);
    }
    looking = false;
}

}  // namespace pending

}  // namespace hpe::mpi::HPE_MPI_ABI
