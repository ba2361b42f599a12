// SPDX-License-Identifier: MIT
// Requests, completed one by one and in arrays.
#include "shim/doors/mpi_requests.h"

#include <memory>
#include <new>
#include <utility>

#include "shim/doors/mpi_door.h"
#include "shim/mpi/pending.h"

namespace hpe::doors::HPE_MPI_ABI {

namespace {

// What is known of the requests of a call, taken out of the table until it is clear which have completed. What is left
// goes back.
class Taken {
public:
    Taken(int count, const MPI_Request* requests, bool need_statuses, bool statuses_ignored) noexcept {
        if (count <= 0 || requests == nullptr) return;
        const auto wanted = static_cast<std::size_t>(count);
        for (std::size_t i = 0; i < wanted; ++i) {
            auto one = requests[i] == handles.no_request ? nullptr : pending::take(requests[i]);
            if (one == nullptr) continue;
            if (all_ == nullptr) {
                all_.reset(new (std::nothrow) PendingPointer[wanted]);
                if (need_statuses && statuses_ignored) statuses_.reset(new (std::nothrow) MPI_Status[wanted]());
                if (all_ == nullptr || (need_statuses && statuses_ignored && statuses_ == nullptr)) {
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
    void complete(int index, const MPI_Status& status) noexcept {
        if (auto& one = all_[static_cast<std::size_t>(index)]; one != nullptr)
            stored_ = pending::complete(std::move(one), status) && stored_;
    }
    // The program keeps the request.
    void settle(int index, const MPI_Status& status) noexcept {
        if (auto& one = all_[static_cast<std::size_t>(index)]; one != nullptr)
            stored_ = pending::settle(*one, status) && stored_;
    }
    void fail(int index) noexcept {
        if (auto& one = all_[static_cast<std::size_t>(index)]; one != nullptr) pending::fail(std::move(one));
    }
    // As the statuses say where a call returned that some requests ended with errors.
    void by_error(int index, const MPI_Status& status) noexcept {
        if (status.MPI_ERROR == MPI_SUCCESS)
            complete(index, status);
        else if (status.MPI_ERROR != MPI_ERR_PENDING)
            fail(index);
    }

private:
    std::unique_ptr<PendingPointer[]> all_;
    std::unique_ptr<MPI_Status[]> statuses_;
    std::size_t count_ = 0;
    bool failed_ = false, stored_ = true;
};

bool all_ignored(const MPI_Status* statuses) noexcept { return statuses == MPI_STATUSES_IGNORE; }

int error_class(int error) noexcept {
    int result = error;
    functions.MPI_Error_class(error, &result);
    return result;
}

// One request that may complete in the call. `done` is true where it has.
template <class Call>
int for_one(MPI_Request* request, MPI_Status* status, Call&& call) {
    PendingPointer one = request != nullptr && *request != handles.no_request ? pending::take(*request) : nullptr;
    int result = MPI_SUCCESS;
    if (one == nullptr) {
        bool done = false;
        result = call(status, done);
    } else {
        MPI_Status mine{};
        if (ignored(status)) status = &mine;
        bool done = false;
        result = call(status, done);
        if (result == MPI_SUCCESS && done) {
            if (!pending::complete(std::move(one), *status)) result = cannot();
        } else if (result != MPI_SUCCESS && *request != one->request) {
            pending::fail(std::move(one));  // MPI has ended it
        } else {
            pending::give_back(std::move(one));
        }
    }
    pending::completed();
    return result;
}

// The arrays of waitall and testall.
template <class Call>
int for_all(int count, MPI_Request* requests, MPI_Status* statuses, Call&& call) {
    Taken taken(count, requests, true, all_ignored(statuses));
    if (taken.failed()) return cannot();
    bool done = false;
    if (!taken.any()) {
        const int result = call(statuses, done);
        pending::completed();
        return result;
    }
    statuses = taken.statuses(statuses);
    const int result = call(statuses, done);
    if (result == MPI_SUCCESS ? done : error_class(result) == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < count; ++i) {
            if (result == MPI_SUCCESS)
                taken.complete(i, statuses[i]);
            else
                taken.by_error(i, statuses[i]);
        }
    }
    pending::completed();
    return taken.result(result);
}

// Of waitany and testany.
template <class Call>
int for_any(int count, MPI_Request* requests, int* index, MPI_Status* status, Call&& call) {
    Taken taken(count, requests, false, false);
    if (taken.failed()) return cannot();
    MPI_Status mine{};
    if (taken.any() && ignored(status)) status = &mine;
    bool done = false;
    const int result = call(status, done);
    if (taken.any() && *index >= 0 && *index < count) {
        if (result == MPI_SUCCESS && done) taken.complete(*index, *status);
        if (result != MPI_SUCCESS) taken.fail(*index);
    }
    pending::completed();
    return taken.result(result);
}

// Of waitsome and testsome: the statuses stand in the order of the indices.
template <class Call>
int for_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses, Call&& call) {
    Taken taken(count, requests, true, all_ignored(statuses));
    if (taken.failed()) return cannot();
    if (taken.any()) statuses = taken.statuses(statuses);
    const int result = call(statuses);
    if (taken.any() && *completed > 0 && (result == MPI_SUCCESS || error_class(result) == MPI_ERR_IN_STATUS)) {
        for (int i = 0; i < *completed; ++i) {
            if (result == MPI_SUCCESS)
                taken.complete(indices[i], statuses[i]);
            else
                taken.by_error(indices[i], statuses[i]);
        }
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
    const auto real = own<decltype(MPI_Wait)>(row_MPI_Wait);
    if (!pending::any()) return real(request, status);
    return for_one(request, status, [&](MPI_Status* to, bool& done) {
        done = true;
        return real(request, to);
    });
}

int test(MPI_Request* request, int* flag, MPI_Status* status) {
    const auto real = own<decltype(MPI_Test)>(row_MPI_Test);
    if (!pending::any()) return real(request, flag, status);
    return for_one(request, status, [&](MPI_Status* to, bool& done) {
        const int result = real(request, flag, to);
        done = result == MPI_SUCCESS && *flag != 0;
        return result;
    });
}

int wait_all(int count, MPI_Request* requests, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Waitall)>(row_MPI_Waitall);
    if (!pending::any()) return real(count, requests, statuses);
    return for_all(count, requests, statuses, [&](MPI_Status* to, bool& done) {
        done = true;
        return real(count, requests, to);
    });
}

int test_all(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Testall)>(row_MPI_Testall);
    if (!pending::any()) return real(count, requests, flag, statuses);
    return for_all(count, requests, statuses, [&](MPI_Status* to, bool& done) {
        const int result = real(count, requests, flag, to);
        done = result == MPI_SUCCESS && *flag != 0;
        return result;
    });
}

int wait_any(int count, MPI_Request* requests, int* index, MPI_Status* status) {
    const auto real = own<decltype(MPI_Waitany)>(row_MPI_Waitany);
    if (!pending::any()) return real(count, requests, index, status);
    return for_any(count, requests, index, status, [&](MPI_Status* to, bool& done) {
        done = true;
        return real(count, requests, index, to);
    });
}

int test_any(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    const auto real = own<decltype(MPI_Testany)>(row_MPI_Testany);
    if (!pending::any()) return real(count, requests, index, flag, status);
    return for_any(count, requests, index, status, [&](MPI_Status* to, bool& done) {
        const int result = real(count, requests, index, flag, to);
        done = result == MPI_SUCCESS && *flag != 0;
        return result;
    });
}

int wait_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Waitsome)>(row_MPI_Waitsome);
    if (!pending::any()) return real(count, requests, completed, indices, statuses);
    return for_some(count, requests, completed, indices, statuses,
                    [&](MPI_Status* to) { return real(count, requests, completed, indices, to); });
}

int test_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Testsome)>(row_MPI_Testsome);
    if (!pending::any()) return real(count, requests, completed, indices, statuses);
    return for_some(count, requests, completed, indices, statuses,
                    [&](MPI_Status* to) { return real(count, requests, completed, indices, to); });
}

// The request stays, but the program may read what came.
int get_status(MPI_Request request, int* flag, MPI_Status* status) {
    const auto real = own<decltype(MPI_Request_get_status)>(row_MPI_Request_get_status);
    auto one = pending::any() ? pending::take(request) : nullptr;
    if (one == nullptr) return real(request, flag, status);
    MPI_Status mine{};
    if (ignored(status)) status = &mine;
    const int result = real(request, flag, status);
    const bool stored = result != MPI_SUCCESS || *flag == 0 || pending::settle(*one, *status);
    pending::give_back(std::move(one));
    pending::completed();
    return stored ? result : cannot();
}

// The same of several.
int get_status_all(int count, const MPI_Request* requests, int* flag, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Request_get_status_all)>(row_MPI_Request_get_status_all);
    if (!pending::any()) return real(count, requests, flag, statuses);
    Taken taken(count, requests, true, all_ignored(statuses));
    if (taken.failed()) return cannot();
    if (taken.any()) statuses = taken.statuses(statuses);
    const int result = real(count, requests, flag, statuses);
    for (int i = 0; taken.any() && result == MPI_SUCCESS && *flag != 0 && i < count; ++i) taken.settle(i, statuses[i]);
    pending::completed();
    return taken.result(result);
}

int get_status_any(int count, const MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    const auto real = own<decltype(MPI_Request_get_status_any)>(row_MPI_Request_get_status_any);
    if (!pending::any()) return real(count, requests, index, flag, status);
    Taken taken(count, requests, false, false);
    if (taken.failed()) return cannot();
    MPI_Status mine{};
    if (taken.any() && ignored(status)) status = &mine;
    const int result = real(count, requests, index, flag, status);
    if (taken.any() && result == MPI_SUCCESS && *flag != 0 && *index >= 0) taken.settle(*index, *status);
    pending::completed();
    return taken.result(result);
}

int get_status_some(int count, const MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses) {
    const auto real = own<decltype(MPI_Request_get_status_some)>(row_MPI_Request_get_status_some);
    if (!pending::any()) return real(count, requests, completed, indices, statuses);
    Taken taken(count, requests, true, all_ignored(statuses));
    if (taken.failed()) return cannot();
    if (taken.any()) statuses = taken.statuses(statuses);
    const int result = real(count, requests, completed, indices, statuses);
    for (int i = 0; taken.any() && result == MPI_SUCCESS && i < *completed; ++i) taken.settle(indices[i], statuses[i]);
    pending::completed();
    return taken.result(result);
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
