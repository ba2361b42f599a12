// SPDX-License-Identifier: MIT
// Requests, completed one by one and in arrays.
#include "shim/doors/mpi_requests.h"

#include <atomic>
#include <climits>
#include <memory>
#include <new>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/doors/mpi_door.h"
#include "shim/mpi/pending.h"

namespace hpe::doors::HPE_MPI_ABI {

namespace {

// What becomes of a request that has completed: MPI ends it, or was only asked.
enum class Then { Ends, Stays };

bool all_ignored(const MPI_Status* statuses) noexcept { return statuses == MPI_STATUSES_IGNORE; }

bool in_statuses(int error) noexcept {
    int result = error;
    functions.MPI_Error_class(error, &result);
    return result == MPI_ERR_IN_STATUS;
}

// What is known of the requests of a call, taken out of the table until it is clear which have completed. What is left
// goes back.
class Taken {
public:
    Taken(Then then, int count, const MPI_Request* requests, bool own_statuses = false) noexcept : then_(then) {
        if (count <= 0 || requests == nullptr) return;
        const auto wanted = static_cast<std::size_t>(count);
        for (std::size_t i = 0; i < wanted; ++i) {
            auto one = requests[i] == handles.no_request ? nullptr : pending::take(requests[i]);
            if (one == nullptr) continue;
            if (all_ == nullptr) {
                all_.reset(new (std::nothrow) PendingPointer[wanted]);
                if (own_statuses) statuses_.reset(new (std::nothrow) MPI_Status[wanted]());
                if (all_ == nullptr || (own_statuses && statuses_ == nullptr)) {
                    failed_ = true;
                    pending::give_back(std::move(one));
                    return;
                }
                count_ = wanted;
            }
            all_[i] = std::move(one);
        }
    }
    ~Taken() {
        for (std::size_t i = 0; i < count_; ++i) {
            if (all_[i] != nullptr) pending::give_back(std::move(all_[i]));
        }
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

    bool any() const noexcept { return count_ != 0; }
    bool failed() const noexcept { return failed_; }
    // What the call returns: an error of ours only where MPI has none.
    int result(int of_mpi) const noexcept { return of_mpi == MPI_SUCCESS && !stored_ ? cannot() : of_mpi; }
    // In place of those that the program does not want.
    MPI_Status* statuses(MPI_Status* programs) const noexcept { return statuses_ ? statuses_.get() : programs; }
    // Whether a call with this result says in the statuses what became of each request.
    bool told(int result) const noexcept {
        return result == MPI_SUCCESS || (then_ == Then::Ends && in_statuses(result));
    }
    // By what such a call said.
    void settle(int index, int result, const MPI_Status& status) noexcept {
        if (result == MPI_SUCCESS || status.MPI_ERROR == MPI_SUCCESS)
            complete(index, status);
        else if (status.MPI_ERROR != MPI_ERR_PENDING)
            fail(index);
    }
    void complete(int index, const MPI_Status& status) noexcept {
        auto& one = all_[static_cast<std::size_t>(index)];
        if (one == nullptr) return;
        const bool stored =
            then_ == Then::Ends ? pending::complete(std::move(one), status) : pending::settle(*one, status);
        stored_ = stored && stored_;
    }
    void fail(int index) noexcept {
        auto& one = all_[static_cast<std::size_t>(index)];
        if (one != nullptr && then_ == Then::Ends) pending::fail(std::move(one));
    }

private:
    const Then then_;
    std::unique_ptr<PendingPointer[]> all_;
    std::unique_ptr<MPI_Status[]> statuses_;
    std::size_t count_ = 0;
    bool failed_ = false, stored_ = true;
};

// Meanwhile another thread may have freed a receive.
int looked_at_freed(int result) noexcept {
    pending::completed();
    return result;
}

// The doors by what they name. `flag`: where a call that does not wait says whether something has completed.
template <class Real, class... Flag>
int for_one(Real* real, MPI_Request* request, MPI_Status* status, Flag... flag) {
    if (!pending::any()) return looked_at_freed(real(request, flag..., status));
    PendingPointer one = request != nullptr && *request != handles.no_request ? pending::take(*request) : nullptr;
    MPI_Status mine{};
    if (one != nullptr && ignored(status)) status = &mine;
    int result = real(request, flag..., status);
    if (one == nullptr) {
        // None of ours.
    } else if (result == MPI_SUCCESS && (... && (*flag != 0))) {
        if (!pending::complete(std::move(one), *status)) result = cannot();
    } else if (result != MPI_SUCCESS && *request != one->request) {
        pending::fail(std::move(one));  // MPI has ended it
    } else {
        pending::give_back(std::move(one));
    }
    pending::completed();
    return result;
}

template <class Real, class Request, class... Flag>
int for_all(Then then, Real* real, int count, Request* requests, MPI_Status* statuses, Flag... flag) {
    if (!pending::any()) return looked_at_freed(real(count, requests, flag..., statuses));
    Taken taken(then, count, requests, all_ignored(statuses));
    if (taken.failed()) return cannot();
    statuses = taken.statuses(statuses);
    const int result = real(count, requests, flag..., statuses);
    if (taken.any() && taken.told(result) && (result != MPI_SUCCESS || (... && (*flag != 0)))) {
        for (int i = 0; i < count; ++i) taken.settle(i, result, statuses[i]);
    }
    pending::completed();
    return taken.result(result);
}

template <class Real, class Request, class... Flag>
int for_any(Then then, Real* real, int count, Request* requests, int* index, MPI_Status* status, Flag... flag) {
    if (!pending::any() || index == nullptr) return looked_at_freed(real(count, requests, index, flag..., status));
    Taken taken(then, count, requests);
    if (taken.failed()) return cannot();
    MPI_Status mine{};
    if (taken.any() && ignored(status)) status = &mine;
    // After an error MPI may have named none.
    constexpr int kNone = INT_MIN;
    int which = kNone;
    const int result = real(count, requests, &which, flag..., status);
    if (which != kNone) *index = which;
    if (taken.any() && which >= 0 && which < count) {
        if (result != MPI_SUCCESS)
            taken.fail(which);
        else if ((... && (*flag != 0)))
            taken.complete(which, *status);
    }
    pending::completed();
    return taken.result(result);
}

// The statuses stand in the order of the indices.
template <class Real, class Request>
int for_some(Then then, Real* real, int count, Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    if (!pending::any()) return looked_at_freed(real(count, requests, completed, indices, statuses));
    Taken taken(then, count, requests, all_ignored(statuses));
    if (taken.failed()) return cannot();
    statuses = taken.statuses(statuses);
    const int result = real(count, requests, completed, indices, statuses);
    if (taken.any() && *completed > 0 && taken.told(result)) {
        for (int i = 0; i < *completed; ++i) taken.settle(indices[i], result, statuses[i]);
    }
    pending::completed();
    return taken.result(result);
}

// False: what is sent cannot be had.
bool load_for_start(MPI_Request request) noexcept {
    auto one = pending::take(request);
    if (one == nullptr) return true;
    const bool loaded = pending::start(*one);
    pending::give_back(std::move(one));
    return loaded;
}
void not_started(MPI_Request request) noexcept {
    auto one = pending::take(request);
    if (one == nullptr) return;
    pending::not_started(*one);
    pending::give_back(std::move(one));
}

}  // namespace

int start(MPI_Request* request) {
    if (pending::any() && request != nullptr && !load_for_start(*request)) return cannot();
    return own<decltype(MPI_Start)>(row_MPI_Start)(request);
}

// All, or none where one cannot be.
int start_all(int count, MPI_Request* requests) {
    if (pending::any() && requests != nullptr) {
        for (int i = 0; i < count; ++i) {
            if (load_for_start(requests[i])) continue;
            while (--i >= 0) not_started(requests[i]);
            return cannot();
        }
    }
    return own<decltype(MPI_Startall)>(row_MPI_Startall)(count, requests);
}

int wait(MPI_Request* request, MPI_Status* status) {
    return for_one(own<decltype(MPI_Wait)>(row_MPI_Wait), request, status);
}
int test(MPI_Request* request, int* flag, MPI_Status* status) {
    return for_one(own<decltype(MPI_Test)>(row_MPI_Test), request, status, flag);
}

int wait_all(int count, MPI_Request* requests, MPI_Status* statuses) {
    return for_all(Then::Ends, own<decltype(MPI_Waitall)>(row_MPI_Waitall), count, requests, statuses);
}
int test_all(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
    return for_all(Then::Ends, own<decltype(MPI_Testall)>(row_MPI_Testall), count, requests, statuses, flag);
}

int wait_any(int count, MPI_Request* requests, int* index, MPI_Status* status) {
    return for_any(Then::Ends, own<decltype(MPI_Waitany)>(row_MPI_Waitany), count, requests, index, status);
}
int test_any(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    return for_any(Then::Ends, own<decltype(MPI_Testany)>(row_MPI_Testany), count, requests, index, status, flag);
}

int wait_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    return for_some(Then::Ends, own<decltype(MPI_Waitsome)>(row_MPI_Waitsome), count, requests, completed, indices,
                    statuses);
}
int test_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    return for_some(Then::Ends, own<decltype(MPI_Testsome)>(row_MPI_Testsome), count, requests, completed, indices,
                    statuses);
}

// Other than a request's end, its status may be asked for by several threads: who is told that it is done waits until
// its bytes are there. MPI may call the program's functions, which come here again.
template <class Ask>
int one_after_another(Ask&& ask) {
    static constinit Mutex mutex;
    static constinit std::atomic<bool> asked{false};  // by a thread, which may have taken all requests out of the table
    static thread_local bool asking = false;
    if (asking || (!pending::any() && !asked.load(std::memory_order_acquire))) return ask();
    const Locked by_one(mutex);
    asked.store(asking = true, std::memory_order_seq_cst);
    const int result = ask();
    asked.store(asking = false, std::memory_order_release);
    return result;
}

// The request stays, but the program may read what came.
int get_status(MPI_Request request, int* flag, MPI_Status* status) {
    const auto real = own<decltype(MPI_Request_get_status)>(row_MPI_Request_get_status);
    return one_after_another([&] {
        auto one = pending::any() ? pending::take(request) : nullptr;
        if (one == nullptr) return real(request, flag, status);
        MPI_Status mine{};
        MPI_Status* const told = ignored(status) ? &mine : status;
        const int result = real(request, flag, told);
        const bool stored = result != MPI_SUCCESS || *flag == 0 || pending::settle(*one, *told);
        pending::give_back(std::move(one));
        pending::completed();
        return stored ? result : cannot();
    });
}

// The same of several.
int get_status_all(int count, const MPI_Request* requests, int* flag, MPI_Status* statuses) {
    return one_after_another([&] {
        return for_all(Then::Stays, own<decltype(MPI_Request_get_status_all)>(row_MPI_Request_get_status_all), count,
                       requests, statuses, flag);
    });
}
int get_status_any(int count, const MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    return one_after_another([&] {
        return for_any(Then::Stays, own<decltype(MPI_Request_get_status_any)>(row_MPI_Request_get_status_any), count,
                       requests, index, status, flag);
    });
}
int get_status_some(int count, const MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    return one_after_another([&] {
        return for_some(Then::Stays, own<decltype(MPI_Request_get_status_some)>(row_MPI_Request_get_status_some), count,
                        requests, completed, indices, statuses);
    });
}

int free_request(MPI_Request* request) {
    const auto real = own<decltype(MPI_Request_free)>(row_MPI_Request_free);
    auto one = pending::any() && request != nullptr ? pending::take(*request) : nullptr;
    if (one != nullptr && !one->started) one->partitions.reset();  // the handle is anybody's again at once
    if (one == nullptr || !one->started) return real(request);
    // Of a one-sided call: the program may end the window next.
    if (one->window) {
        MPI_Status status{};
        const int result = own<decltype(MPI_Wait)>(row_MPI_Wait)(request, &status);
        return result == MPI_SUCCESS && !pending::complete(std::move(one), status) ? cannot() : result;
    }
    *request = handles.no_request;
    pending::keep_freed(std::move(one));
    pending::completed();
    return MPI_SUCCESS;
}

}  // namespace hpe::doors::HPE_MPI_ABI
