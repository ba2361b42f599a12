// SPDX-License-Identifier: MIT
// One-sided calls, with host and device buffers and windows (mpi_twins.h).
// usage: mpi_windows CASE...; without a case prints all.

#include <atomic>
#include <thread>

#include "mpi_twins.h"

namespace {

int before(const Twins& w) { return (w.rank + w.ranks - 1) % w.ranks; }
int behind(const Twins& w) { return (w.rank + 1) % w.ranks; }

// What a rank gets into its own window is there for others in the epoch that begins where that one ended.
void got_into_own(Twins& w) {
    const int n = 3000;
    MPI_Datatype gaps;
    MPI_Type_vector(n / 4, 2, 4, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    Pair send(w, 4), all(w, 6u * 4 * n);
    both(w, send, all, [&](MPI_Comm comm, char*, char* r, Said& said) {
        auto* const data = reinterpret_cast<int*>(r);
        MPI_Win window;
        MPI_Win_create(r, 6 * 4 * n, 4, MPI_INFO_NULL, comm, &window);
        MPI_Win_fence(0, window);
        MPI_Get(data + n, n, MPI_INT, behind(w), 0, n, MPI_INT, window);
        MPI_Win_fence(0, window);
        MPI_Get(data + 2 * n, 1, gaps, behind(w), n, 1, gaps, window);
        MPI_Win_fence(0, window);
        MPI_Get(data + 3 * n, 1, gaps, behind(w), 2 * n, 1, gaps, window);
        MPI_Win_fence(0, window);
        // Not published yet, beside what others get: more than the separate model promises, as MPIs do.
        data[4 * n] = data[4 * n + 1] = data[5 * n] = w.rank;
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, behind(w), 0, window);
        const int none = 0;
        MPI_Fetch_and_op(&none, data + 4 * n, MPI_INT, behind(w), 3 * n + 1, MPI_NO_OP, window);
        MPI_Win_flush(behind(w), window);
        said.push_back(data[4 * n]);
        MPI_Request request;
        MPI_Rget(data + 4 * n + 8, n - 8, MPI_INT, behind(w), 8, n - 8, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        said.push_back(data[5 * n - 1]);
        MPI_Win_unlock(behind(w), window);
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, behind(w), 0, window);
        MPI_Get(data + 5 * n, n, MPI_INT, behind(w), 4 * n, n, MPI_INT, window);
        MPI_Win_unlock(behind(w), window);
        MPI_Win_free(&window);
    });
    MPI_Type_free(&gaps);
}

// Windows in host memory; what is put into them and got out of them lies anywhere.
void windows(Twins& w) {
    const int n = 5000;
    MPI_Datatype gaps;
    MPI_Type_vector(n / 4, 2, 4, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    Pair send(w, 4u * n), receive(w, 4u * n);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        int* shared;
        MPI_Win window;
        MPI_Win_allocate(4 * n, 4, MPI_INFO_NULL, comm, &shared, &window);
        std::memset(shared, w.rank, 4u * n);
        MPI_Win_fence(0, window);
        MPI_Put(s, 1, gaps, behind(w), 0, 1, gaps, window);
        MPI_Win_fence(0, window);
        MPI_Get(r, 1, gaps, before(w), 0, 1, gaps, window);
        MPI_Win_fence(0, window);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, behind(w), 0, window);
        MPI_Accumulate(s + 4000, 500, MPI_INT, behind(w), 100, 500, MPI_INT, MPI_SUM, window);
        MPI_Win_flush(behind(w), window);
        MPI_Get(r + 8, 3, MPI_INT, behind(w), 100, 3, MPI_INT, window);
        MPI_Win_unlock(behind(w), window);
        MPI_Barrier(comm);
        MPI_Win_lock_all(0, window);
        MPI_Fetch_and_op(s, r + 12000, MPI_INT, behind(w), 5, MPI_SUM, window);
        MPI_Win_flush_all(window);
        MPI_Compare_and_swap(s + 4, r + 12000, r + 12004, MPI_INT, behind(w), 5, window);
        MPI_Get_accumulate(s, 10, MPI_INT, r + 12100, 10, MPI_INT, behind(w), 600, 10, MPI_INT, MPI_SUM, window);
        // What is not sent may be longer than its memory.
        MPI_Get_accumulate(s, 100000000, MPI_INT, r + 12200, 10, MPI_INT, behind(w), 650, 10, MPI_INT, MPI_NO_OP,
                           window);
        MPI_Win_unlock_all(window);
        MPI_Request request;
        MPI_Win_lock(MPI_LOCK_SHARED, before(w), 0, window);
        MPI_Rget(r + 16000, 100, MPI_INT, before(w), 1000, 100, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        said.push_back(r[16005]);
        // A flush and the end of an epoch complete such calls, too; their requests may be waited for later.
        MPI_Rget(r + 17000, 100, MPI_INT, before(w), 1000, 100, MPI_INT, window, &request);
        MPI_Win_flush(before(w), window);
        said.push_back(r[17005]);
        r[17005] = 99;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        said.push_back(r[17005]);
        MPI_Rget_accumulate(s, 10, MPI_INT, r + 18000, 10, MPI_INT, before(w), 700, 10, MPI_INT, MPI_SUM, window,
                            &request);
        MPI_Win_unlock(before(w), window);
        said.push_back(r[18005]);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);
        for (int i = 0; i < n; ++i) said.push_back(shared[i]);
        MPI_Win_free(&window);
    });
    MPI_Type_free(&gaps);
}

// Elements with gaps whose request is waited for first: MPICH 4.0 says then that it is done, and the bytes are there
// when the window is synchronised.
void requested(Twins& w) {
    const int n = 3000;
    MPI_Datatype gaps;
    MPI_Type_vector(n, 2, 6, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    Pair send(w, 4), receive(w, 4u * 6 * n);
    both(w, send, receive, [&](MPI_Comm comm, char*, char* r, Said&) {
        int* shared;
        MPI_Win window;
        MPI_Win_allocate(4 * 2 * n, 4, MPI_INFO_NULL, comm, &shared, &window);
        for (int i = 0; i < 2 * n; ++i) shared[i] = w.rank * 100000 + i;
        MPI_Barrier(comm);
        MPI_Win_lock_all(0, window);
        MPI_Request request;
        MPI_Rget(r, 1, gaps, behind(w), 0, 2 * n, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_unlock_all(window);
        MPI_Barrier(comm);
        MPI_Win_free(&window);
    });
    MPI_Type_free(&gaps);
}

// The same where the other side's elements have gaps, with other bytes in between.
void requested_of_gaps(Twins& w) {
    const int n = 20000;
    MPI_Datatype gaps;
    MPI_Type_vector(n, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    Pair send(w, 8u * n), receive(w, 12u * n);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        int* shared;
        MPI_Win window;
        MPI_Win_allocate(16 * n, 4, MPI_INFO_NULL, comm, &shared, &window);
        for (int i = 0; i < 4 * n; ++i) shared[i] = w.rank * 100000 + i;
        MPI_Barrier(comm);
        MPI_Win_lock_all(0, window);
        MPI_Request request;
        for (int k = 0; k < 2; ++k) {
            MPI_Rget(r + 4 * n * k, n, MPI_INT, behind(w), k, 1, gaps, window, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Rput(s, n, MPI_INT, behind(w), 2 * n, 1, gaps, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Sendrecv(s + 4 * n, n, MPI_INT, behind(w), 1, r + 8 * n, n, MPI_INT, before(w), 1, comm, MPI_STATUS_IGNORE);
        MPI_Win_unlock_all(window);
        MPI_Barrier(comm);
        for (int i = 2 * n; i < 4 * n; i += 7) said.push_back(shared[i]);
        MPI_Win_free(&window);
    });
    MPI_Type_free(&gaps);
}

// Windows over the buffers themselves, which others may write, too, if they are exported: what other ranks put there,
// and what this one stores there, is where the other looks for it after the calls that MPI 4.1 (12.7) names.
void over_objects(Twins& w, bool exported) {
    const int n = 50000, bytes = 4 * n;
    MPI_Datatype gaps;
    MPI_Type_vector(200, 2, 5, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    Pair send(w, bytes), receive(w, bytes), memory(w, bytes + 64);
    cudaIpcMemHandle_t handle;
    if (exported && w.device && cudaIpcGetMemHandle(&handle, memory.device()) != cudaSuccess) std::abort();
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        const bool on_device = s != send.host() && w.device;
        // A base that is no multiple of 8 MPICH 4.0 itself does not give back.
        char* const m = (s == send.host() ? memory.host() : memory.device()) + 48;
        const auto ints = [](char* at) { return reinterpret_cast<int*>(at); };
        // By the device, or as it would.
        const auto fill = [&](int first, int count, int value) {
            if (on_device)
                cudaMemset(m + 4 * first, value, 4ul * static_cast<unsigned>(count));
            else
                std::memset(m + 4 * first, value, 4ul * static_cast<unsigned>(count));
        };
        const auto say_ints = [&](int first, int count) {
            for (int i = first; i < first + count; ++i) said.push_back(ints(m)[i]);
        };
        MPI_Win window;
        MPI_Win_create(m, bytes, 4, MPI_INFO_NULL, comm, &window);
        void* attribute = nullptr;
        int there = 0;
        MPI_Win_get_attr(window, MPI_WIN_BASE, &attribute, &there);
        if (!there || attribute != m) w.complain("another base");
        MPI_Win_get_attr(window, MPI_WIN_SIZE, &attribute, &there);
        said.push_back(there && *static_cast<MPI_Aint*>(attribute) == bytes);
        MPI_Win_get_attr(window, MPI_WIN_MODEL, &attribute, &there);
        if (on_device && *static_cast<int*>(attribute) != MPI_WIN_SEPARATE) w.complain("unified memory");

        // Fences. What was there before, what the CPU and the device store, and what comes.
        MPI_Win_fence(0, window);
        MPI_Get(r, 1000, MPI_INT, before(w), 30000, 1000, MPI_INT, window);
        MPI_Put(s, 1000, MPI_INT, behind(w), 100, 1000, MPI_INT, window);
        MPI_Put(s + 4000, 1, gaps, behind(w), 2000, 1, gaps, window);
        MPI_Win_fence(0, window);
        say_ints(99, 1002);
        for (int i = 10000; i < 10100; i += 3) ints(m)[i] = i + w.rank;
        fill(12000, 5000, w.rank + 1);
        MPI_Win_fence(0, window);
        MPI_Get(r + 4000, 7100, MPI_INT, before(w), 9990, 7100, MPI_INT, window);
        MPI_Accumulate(s, 300, MPI_INT, behind(w), 20000, 300, MPI_INT, MPI_SUM, window);
        MPI_Win_fence(0, window);
        say_ints(20000, 300);

        // Post and wait, or test.
        MPI_Group all, from, to;
        const int before_me = before(w), behind_me = behind(w);
        MPI_Comm_group(comm, &all);
        MPI_Group_incl(all, 1, &before_me, &from);
        MPI_Group_incl(all, 1, &behind_me, &to);
        for (int round = 0; round < 2; ++round) {
            ints(m)[21000] = 500 * w.rank + round;
            MPI_Win_post(from, 0, window);
            MPI_Win_start(to, 0, window);
            MPI_Get(r + 40000 + 4 * round, 1, MPI_INT, behind(w), 21000, 1, MPI_INT, window);
            MPI_Put(s + 4 * round, 50, MPI_INT, behind(w), 21100, 50, MPI_INT, window);
            MPI_Win_complete(window);
            int done = round;
            if (done) MPI_Win_wait(window);
            while (!done) MPI_Win_test(window, &done);
            say_ints(21090, 70);
        }
        for (MPI_Group* group : {&all, &from, &to}) MPI_Group_free(group);

        // Locks: of others, and of this rank's own window.
        const auto put_in_turn = [&](int first, int count) {
            for (int turn = 0; turn < w.ranks; ++turn) {
                if (turn == w.rank) {
                    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, behind(w), 0, window);
                    MPI_Put(s, count, MPI_INT, behind(w), first, count, MPI_INT, window);
                    MPI_Win_unlock(behind(w), window);
                }
                MPI_Barrier(comm);
            }
        };
        put_in_turn(22000, 100);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w.rank, 0, window);
        say_ints(21990, 120);
        for (int i = 23000; i < 23100; ++i) ints(m)[i] = i - w.rank;
        MPI_Win_unlock(w.rank, window);
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, before(w), 0, window);
        MPI_Get(r + 60000, 120, MPI_INT, before(w), 22990, 120, MPI_INT, window);
        MPI_Win_unlock(before(w), window);

        // Of all, with synchronisations between.
        MPI_Barrier(comm);
        MPI_Win_lock_all(0, window);
        MPI_Fetch_and_op(s, r + 70000, MPI_INT, behind(w), 25000, MPI_SUM, window);
        MPI_Win_flush(behind(w), window);
        MPI_Barrier(comm);
        MPI_Win_sync(window);
        say_ints(24999, 3);
        ints(m)[26000] = 9 * w.rank;
        fill(26001, 10, w.rank + 3);
        MPI_Win_sync(window);
        MPI_Barrier(comm);
        MPI_Get(r + 72000, 20, MPI_INT, before(w), 25999, 20, MPI_INT, window);
        MPI_Win_flush(before(w), window);
        MPI_Barrier(comm);
        MPI_Win_unlock_all(window);

        MPI_Barrier(comm);
        put_in_turn(28000, 10);
        MPI_Win_lock_all(0, window);
        say_ints(28000, 10);
        ints(m)[28100] = 7 + w.rank;
        MPI_Win_unlock_all(window);
        MPI_Barrier(comm);
        MPI_Win_lock(MPI_LOCK_SHARED, before(w), 0, window);
        MPI_Get(r + 74000, 1, MPI_INT, before(w), 28100, 1, MPI_INT, window);
        MPI_Win_unlock(before(w), window);
        MPI_Barrier(comm);

        // What came last is there when the window is gone.
        put_in_turn(27000, 10);
        MPI_Win_free(&window);
        said.push_back(window == MPI_WIN_NULL);
    });
    memory.check("the window");
    MPI_Type_free(&gaps);
}
void windows_over_objects(Twins& w) { over_objects(w, false); }
void windows_over_exported(Twins& w) { over_objects(w, true); }

// Host memory that is attached, at addresses that the ranks tell each other.
void dynamic(Twins& w) {
    const int n = 50000;
    Pair send(w, 4 * n), receive(w, 4 * n);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said& said) {
        std::vector<int> shared(n, w.rank);
        MPI_Win window;
        MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &window);
        MPI_Win_attach(window, shared.data(), 4 * n);
        MPI_Aint mine = 0, others = 0;
        MPI_Get_address(shared.data(), &mine);
        MPI_Sendrecv(&mine, 1, MPI_AINT, before(w), 1, &others, 1, MPI_AINT, behind(w), 1, comm, MPI_STATUS_IGNORE);
        MPI_Win_fence(0, window);
        MPI_Put(s, n / 2, MPI_INT, behind(w), others, n / 2, MPI_INT, window);
        MPI_Win_fence(0, window);
        MPI_Get(r + 400, n / 4, MPI_INT, behind(w), MPI_Aint_add(others, n), n / 4, MPI_INT, window);
        MPI_Win_fence(0, window);
        said.assign(shared.begin(), shared.end());
        MPI_Win_detach(window, shared.data());
        MPI_Win_free(&window);
    });
}

// Threads that share a window, each with calls and flushes of its own.
void flushed_by_threads(Twins& w) {
    constexpr int n = 5000, total = 200000, rounds = 100;
    constexpr unsigned threads = 4;
    Pair send(w, 4), receive(w, std::size_t{4} * threads * n);
    both(w, send, receive, [&](MPI_Comm comm, char*, char* r, Said& said) {
        int* shared;
        MPI_Win window;
        MPI_Win_allocate(4 * total, 4, MPI_INFO_NULL, comm, &shared, &window);
        for (int i = 0; i < total; ++i) shared[i] = i;
        MPI_Barrier(comm);
        MPI_Win_lock_all(0, window);
        std::atomic<int> wrong{0};
        const auto get = [&](unsigned thread) {
            const volatile int* const mine = reinterpret_cast<const int*>(r) + thread * n;
            for (int round = 0; round < rounds; ++round) {
                const int from = static_cast<int>((thread + 1) * 7919 * static_cast<unsigned>(round + 1) % (total - n));
                int* const to = const_cast<int*>(mine);
                if (thread == 0) {
                    MPI_Request request;
                    MPI_Rget(to, n, MPI_INT, behind(w), from, n, MPI_INT, window, &request);
                    MPI_Wait(&request, MPI_STATUS_IGNORE);
                } else {
                    MPI_Get(to, n, MPI_INT, behind(w), from, n, MPI_INT, window);
                    MPI_Win_flush(behind(w), window);
                }
                for (int i = 0; i < n; i += 511) wrong += mine[i] != from + i;
            }
        };
        std::vector<std::thread> all;
        for (unsigned thread = 0; thread < threads; ++thread) all.emplace_back(get, thread);
        for (auto& thread : all) thread.join();
        MPI_Win_unlock_all(window);
        said.push_back(wrong);
        MPI_Barrier(comm);
        MPI_Win_free(&window);
    });
}

// Refused: the error is returned.
void attached_object(Twins& w) {
    void* memory;
    MPI_Win window = MPI_WIN_NULL;
    cudaMalloc(&memory, 4096);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    if (MPI_Win_attach(window, memory, 4096) == MPI_SUCCESS) {
        w.complain("attached");
        MPI_Win_detach(window, memory);
    }
    MPI_Win_free(&window);
    cudaFree(memory);
    ++w.calls;
}

#ifdef OPEN_MPI  // MPICH 4.0 itself puts what is for the second window into the first.
// Two windows that share bytes: what comes through one is seen through the other after a synchronisation of each.
void overlapping(Twins& w) {
    const int n = 30000;
    Pair send(w, 4 * n), receive(w, 4 * n), memory(w, 4 * n);
    both(w, send, receive, [&](MPI_Comm comm, char* s, char* r, Said&) {
        char* const m = s == send.host() ? memory.host() : memory.device();
        MPI_Win first, second;
        MPI_Win_create(m, 3 * n, 4, MPI_INFO_NULL, comm, &first);
        MPI_Win_create(m + n, 3 * n, 4, MPI_INFO_NULL, comm, &second);
        for (const MPI_Win window : {first, second}) MPI_Win_fence(0, window);
        MPI_Put(s, 1000, MPI_INT, behind(w), n / 4 + 100, 1000, MPI_INT, first);
        MPI_Put(s + 8000, 500, MPI_INT, behind(w), 5000, 500, MPI_INT, second);
        for (const MPI_Win window : {first, second, first}) MPI_Win_fence(0, window);
        MPI_Get(r, 1000, MPI_INT, before(w), 100, 1000, MPI_INT, second);
        MPI_Get(r + 8000, 500, MPI_INT, before(w), n / 4 + 5000, 500, MPI_INT, first);
        for (MPI_Win* window : {&first, &second}) {
            MPI_Win_fence(0, *window);
            MPI_Win_free(window);
        }
    });
    memory.check("the windows");
}
#endif

const Cases cases = {
    {"windows", windows},
    {"requested", requested},
    {"requested_of_gaps", requested_of_gaps},
    {"windows_over_objects", windows_over_objects},
    {"windows_over_exported", windows_over_exported},
    {"got_into_own", got_into_own},
    {"dynamic", dynamic},
    {"flushed_by_threads", flushed_by_threads},
#ifdef OPEN_MPI
    {"overlapping", overlapping},
#endif
};

// Not among those that all ranks make.
const Cases alone = {{"attached_object", attached_object}};

}  // namespace

int main(int argc, char** argv) { return run_cases(argc, argv, cases, 11, MPI_THREAD_MULTIPLE, 1, alone); }
