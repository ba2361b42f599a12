// SPDX-License-Identifier: MIT
// One case for each way to complete, ask for and end requests, with host and device buffers (mpi_twins.h).
// usage: mpi_requests CASE...; without a case prints all.
#include <functional>
#include <map>

#include "mpi_twins.h"

namespace {

constexpr int kSmall = 100, kLarge = 300000;  // ints: below and above what MPI sends at once

int before(const Twins& w) { return (w.rank + w.ranks - 1) % w.ranks; }
int behind(const Twins& w) { return (w.rank + 1) % w.ranks; }

using Way = std::function<void(Twins&, MPI_Comm, int n, MPI_Request* three, Said&)>;

// Two receives and a send, and among them a null and an inactive request: completed in some way.
void requests(Twins& w, const Way& way) {
    for (const int n : {kSmall, kLarge}) {
        w.what = std::to_string(n) + " ints";
        Pair send(w, 8u * static_cast<unsigned>(n)), receive(w, 8u * static_cast<unsigned>(n) + 64);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
            MPI_Request all[5], sends[2];
            all[1] = MPI_REQUEST_NULL;
            MPI_Recv_init(r, 1, MPI_INT, before(w), 99, comm, &all[3]);  // never started
            MPI_Irecv(r, n, MPI_INT, before(w), 1, comm, &all[0]);
            MPI_Irecv(r + 4 * n, n, MPI_INT, before(w), 2, comm, &all[2]);
            MPI_Irecv(r + 8 * n, 0, MPI_INT, MPI_PROC_NULL, 3, comm, &all[4]);
            MPI_Isend(s + 4 * n, n, MPI_INT, behind(w), 2, comm, &sends[0]);
            MPI_Isend(s, n, MPI_INT, behind(w), 1, comm, &sends[1]);
            way(w, comm, 5, all, said);
            MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
            MPI_Request_free(&all[3]);
            for (const auto& request : all) said.push_back(request == MPI_REQUEST_NULL);
        });
    }
}

// The order in which requests complete is MPI's business.
void say_in_order(Said& said, std::map<int, MPI_Status>& statuses) {
    for (auto& [index, status] : statuses) {
        said.push_back(index);
        say_status(said, status, MPI_INT);
    }
}

void wait_any(Twins&, MPI_Comm, int n, MPI_Request* all, Said& said) {
    std::map<int, MPI_Status> got;
    for (;;) {
        int index = 0;
        MPI_Status status;
        MPI_Waitany(n, all, &index, &status);
        if (index == MPI_UNDEFINED) break;
        got[index] = status;
    }
    say_in_order(said, got);
}
void test_any(Twins&, MPI_Comm, int n, MPI_Request* all, Said& said) {
    std::map<int, MPI_Status> got;
    for (;;) {
        int index = 0, done = 0;
        MPI_Status status;
        MPI_Testany(n, all, &index, &done, &status);
        if (done && index == MPI_UNDEFINED) break;
        if (done) got[index] = status;
    }
    say_in_order(said, got);
}
template <class Some>
void some(int n, MPI_Request* all, Said& said, Some&& call) {
    std::map<int, MPI_Status> got;
    for (;;) {
        int count = 0, indices[5];
        MPI_Status statuses[5];
        call(n, all, &count, indices, statuses);
        if (count == MPI_UNDEFINED) break;
        for (int i = 0; i < count; ++i) got[indices[i]] = statuses[i];
    }
    say_in_order(said, got);
}
void wait_some(Twins&, MPI_Comm, int n, MPI_Request* all, Said& said) { some(n, all, said, MPI_Waitsome); }
void test_some(Twins&, MPI_Comm, int n, MPI_Request* all, Said& said) { some(n, all, said, MPI_Testsome); }
void test_all(Twins&, MPI_Comm, int n, MPI_Request* all, Said& said) {
    int done = 0;
    MPI_Status statuses[5];
    while (!done) MPI_Testall(n, all, &done, statuses);
    for (int i : {0, 2}) say_status(said, statuses[i], MPI_INT);
}
void wait_unasked(Twins&, MPI_Comm, int n, MPI_Request* all, Said&) { MPI_Waitall(n, all, MPI_STATUSES_IGNORE); }

// What get_status has said to be there may be read before the request ends.
void get_status(Twins& w) {
    Pair send(w, 4 * kSmall), receive(w, 4 * kSmall);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        MPI_Request in, out;
        MPI_Irecv(r, kSmall, MPI_INT, before(w), 1, comm, &in);
        MPI_Barrier(comm);
        MPI_Isend(s, kSmall - 10, MPI_INT, behind(w), 1, comm, &out);
        int done = 0;
        MPI_Status status;
        while (!done) MPI_Request_get_status(in, &done, &status);
        say_status(said, status, MPI_INT);
        for (int i = 0; i < 4 * kSmall; ++i) said.push_back(r[i]);
        r[3] = 77;  // must not be written again
        MPI_Wait(&in, &status);
        say_status(said, status, MPI_INT);
        MPI_Wait(&out, MPI_STATUS_IGNORE);
    });
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
// The same of several, in each of the ways that MPI 4.1 has. The second message is sent later where any is asked for.
void get_status_of_several(Twins& w) {
    for (const char way : {'l', 'y', 's'}) {
        Pair send(w, 8 * kSmall), receive(w, 8 * kSmall);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
            MPI_Request in[3], out[2];
            MPI_Irecv(r, kSmall, MPI_INT, before(w), 0, comm, &in[0]);
            in[1] = MPI_REQUEST_NULL;
            MPI_Irecv(r + 4 * kSmall, kSmall, MPI_INT, before(w), 1, comm, &in[2]);
            MPI_Barrier(comm);
            MPI_Isend(s, kSmall, MPI_INT, behind(w), 0, comm, &out[0]);
            if (way != 'y') MPI_Isend(s + 4 * kSmall, kSmall - 1, MPI_INT, behind(w), 1, comm, &out[1]);
            int count = 0, index = 0, done = 0, indices[3] = {};
            MPI_Status statuses[3];
            while (way == 'l' && !done) MPI_Request_get_status_all(3, in, &done, statuses);
            while (way == 'y' && !done) MPI_Request_get_status_any(3, in, &index, &done, statuses);
            while (way == 's' && count != 2) {
                // MPICH 5.0 itself brings nothing on in the second call.
                MPI_Iprobe(MPI_ANY_SOURCE, 9, comm, &done, MPI_STATUS_IGNORE);
                MPI_Request_get_status_some(3, in, &count, indices, MPI_STATUSES_IGNORE);
            }
            if (way != 's') say_status(said, statuses[0], MPI_INT);
            said.insert(said.end(), {index, indices[0] + indices[1]});
            said.insert(said.end(), r, r + (way == 'y' ? 4 : 8) * kSmall);
            r[3] = 77;  // must not be written again
            if (way == 'y') MPI_Isend(s + 4 * kSmall, kSmall - 1, MPI_INT, behind(w), 1, comm, &out[1]);
            MPI_Waitall(3, in, MPI_STATUSES_IGNORE);
            MPI_Waitall(2, out, MPI_STATUSES_IGNORE);
        });
    }
}
#endif

// Freed while they are under way: a later message says that they are done.
void freed(Twins& w) {
    for (const int n : {kSmall, kLarge}) {
        const auto bytes = 4u * static_cast<unsigned>(n);
        MPI_Datatype gaps;
        MPI_Type_vector(n / 4, 2, 4, MPI_INT, &gaps);
        MPI_Type_commit(&gaps);
        Pair send(w, bytes), receive(w, bytes);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
            MPI_Request in, out;
            MPI_Datatype type;
            MPI_Type_dup(gaps, &type);
            MPI_Irecv(r, 1, type, before(w), 1, comm, &in);
            MPI_Isend(s, 1, type, behind(w), 1, comm, &out);
            MPI_Type_free(&type);
            MPI_Request_free(&in);
            said.push_back(in == MPI_REQUEST_NULL);
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            MPI_Sendrecv(nullptr, 0, MPI_INT, behind(w), 2, nullptr, 0, MPI_INT, before(w), 2, comm, MPI_STATUS_IGNORE);
            MPI_Recv_init(r, 1, gaps, before(w), 1, comm, &in);
            MPI_Start(&in);
            MPI_Request_free(&in);
            MPI_Isend(s, 1, gaps, behind(w), 1, comm, &out);
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            MPI_Sendrecv(nullptr, 0, MPI_INT, behind(w), 2, nullptr, 0, MPI_INT, before(w), 2, comm, MPI_STATUS_IGNORE);
        });
        MPI_Type_free(&gaps);
    }
}

// The program ends the type of persistent requests before it starts them.
void type_freed(Twins& w) {
    for (const int n : {kSmall, kLarge / 4, kLarge}) {
        const auto bytes = 4u * static_cast<unsigned>(n);
        Pair send(w, bytes), receive(w, bytes);
        both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
            MPI_Datatype gaps;
            MPI_Type_vector(n / 4, 2, 4, MPI_INT, &gaps);
            MPI_Type_commit(&gaps);
            MPI_Request all[2];
            MPI_Recv_init(r, 1, gaps, before(w), 1, comm, &all[0]);
            MPI_Send_init(s, 1, gaps, behind(w), 1, comm, &all[1]);
            MPI_Type_free(&gaps);
            for (int round = 0; round < 3; ++round) {
                s[round] = static_cast<char>(round);
                MPI_Startall(2, all);
                MPI_Waitall(2, all, MPI_STATUSES_IGNORE);
            }
            for (auto& request : all) MPI_Request_free(&request);
        });
    }
}

// A program's attribute of a type, whose functions are called for copies that the program makes.
void attributes(Twins& w) {
    static int copies, ends;
    int key = 0;
    const auto copied = [](MPI_Datatype, int, void*, void*, void*, int*) -> int {
        ++copies;
        return MPI_ERR_OTHER;
    };
    const auto ended = [](MPI_Datatype, int, void*, void*) -> int {
        ++ends;
        return MPI_SUCCESS;
    };
    MPI_Type_create_keyval(copied, ended, &key, nullptr);
    Pair send(w, 4 * kSmall), receive(w, 4 * kSmall);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        copies = ends = 0;
        MPI_Datatype gaps;
        MPI_Type_vector(kSmall / 4, 2, 4, MPI_INT, &gaps);
        MPI_Type_commit(&gaps);
        MPI_Type_set_attr(gaps, key, s);
        MPI_Request in;
        MPI_Irecv(r, 1, gaps, before(w), 60, comm, &in);
        MPI_Send(s, 1, gaps, behind(w), 60, comm);
        MPI_Wait(&in, MPI_STATUS_IGNORE);
        said.insert(said.end(), {copies, ends});
        MPI_Type_free(&gaps);
        said.insert(said.end(), {copies, ends});
    });
    MPI_Type_free_keyval(&key);
}

// Errors are the communicator's to handle, whatever others do with theirs.
void no_such_rank(Twins& w) {
    Pair send(w, 4 * kLarge), receive(w, 4 * kLarge);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char*, Said& said) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (const int rank : {w.ranks, w.ranks + 3, -77}) {
            MPI_Request out;
            for (const int error :
                 {MPI_Send(s, kLarge, MPI_INT, rank, 61, comm), MPI_Isend(s, kLarge, MPI_INT, rank, 61, comm, &out)}) {
                int kind = 0;
                MPI_Error_class(error, &kind);
                said.push_back(kind);
            }
        }
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
    });
}

void cancelled(Twins& w) {
    Pair send(w, 4 * kSmall), receive(w, 4 * kSmall);
    both(w, send, receive, [&](MPI_Comm comm, char*, char* r, Said& said) {
        MPI_Request in;
        MPI_Status status;
        MPI_Irecv(r, kSmall, MPI_INT, before(w), 50, comm, &in);
        MPI_Cancel(&in);
        MPI_Wait(&in, &status);
        say_status(said, status, MPI_INT);
        MPI_Recv_init(r, kSmall, MPI_INT, before(w), 51, comm, &in);
        MPI_Start(&in);
        MPI_Cancel(&in);
        MPI_Wait(&in, &status);
        say_status(said, status, MPI_INT);
        MPI_Request_free(&in);
    });
}

int handled = 0;
void count_call(MPI_Comm*, int*, ...) { ++handled; }

// The program's error handler is told once of a message that is too long, by the call that completes its receive.
void handler(Twins& w) {
    Pair send(w, 8 * kSmall), receive(w, 8 * kSmall);
    MPI_Errhandler count;
    MPI_Comm_create_errhandler(count_call, &count);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        for (const MPI_Comm one : {comm, MPI_COMM_WORLD, MPI_COMM_SELF}) MPI_Comm_set_errhandler(one, count);
        for (int i = 0; i < 3; ++i) {
            MPI_Request in, out;
            handled = 0;
            MPI_Isend(s, 2 * kSmall, MPI_INT, behind(w), i, comm, &out);
            MPI_Probe(before(w), i, comm, MPI_STATUS_IGNORE);
            MPI_Irecv(r, kSmall, MPI_INT, before(w), i, comm, &in);
            said.push_back(handled);
            MPI_Wait(&in, MPI_STATUS_IGNORE);
            said.push_back(handled);
            MPI_Wait(&out, MPI_STATUS_IGNORE);
            // What it leaves in its buffer is nobody's business.
            MPI_Sendrecv(s, 2 * kSmall, MPI_INT, behind(w), 9, r, 2 * kSmall, MPI_INT, before(w), 9, comm,
                         MPI_STATUS_IGNORE);
        }
        for (const MPI_Comm one : {comm, MPI_COMM_WORLD, MPI_COMM_SELF})
            MPI_Comm_set_errhandler(one, MPI_ERRORS_ARE_FATAL);
    });
    MPI_Errhandler_free(&count);
}

const Cases cases = {
    {"wait_any", [](Twins& w) { requests(w, wait_any); }},
    {"test_any", [](Twins& w) { requests(w, test_any); }},
    {"wait_some", [](Twins& w) { requests(w, wait_some); }},
    {"test_some", [](Twins& w) { requests(w, test_some); }},
    {"test_all", [](Twins& w) { requests(w, test_all); }},
    {"wait_unasked", [](Twins& w) { requests(w, wait_unasked); }},
    {"get_status", get_status},
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    {"get_status_of_several", get_status_of_several},
#endif
    {"freed", freed},
    {"type_freed", type_freed},
    {"attributes", attributes},
    {"no_such_rank", no_such_rank},
    {"cancelled", cancelled},
    {"handler", handler},
};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, cases, 7); }
