// SPDX-License-Identifier: MIT
// MPI calls whose device refuses libhpe's copies to the host (HPE_SOFT_FAIL): each call returns an error, sends
// nothing, and leaves the device's bytes as they were. One rank, which talks to itself.
// usage: mpi_failing CASE...; without a case prints all. After `fatal` errors end the program.
#define OMPI_SKIP_MPICXX 1
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int kInts = 100000;
constexpr std::size_t kBytes = 4ul * kInts;

struct Object {
    std::vector<int> host = std::vector<int>(kInts);
    int* at = nullptr;
    explicit Object(int seed) {
        for (int i = 0; i < kInts; ++i) host[static_cast<std::size_t>(i)] = seed + 7 * i;
        if (cudaMalloc(reinterpret_cast<void**>(&at), kBytes) != cudaSuccess) std::abort();
        if (cudaMemcpy(at, host.data(), kBytes, cudaMemcpyHostToDevice) != cudaSuccess) std::abort();
    }
    ~Object() { cudaFree(at); }
    // By a copy of the program's own, which does not fail.
    bool as_it_was() const {
        std::vector<int> now(kInts);
        return cudaMemcpy(now.data(), at, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess && now == host;
    }
};

MPI_Comm self = MPI_COMM_NULL;
MPI_Datatype gaps = MPI_DATATYPE_NULL;  // 1000 of 3000 ints

int to_self(MPI_Request* request, int ints) {
    static std::vector<int> data(kInts, -1);
    return MPI_Isend(data.data(), ints, MPI_INT, 0, 1, self, request);
}

// A request that reads device memory is refused when it is made, or when it is started: the device writes its bytes
// anew between the two. What MPI says of its end is of no interest.
int started(const Object& object, int count, MPI_Datatype type) {
    MPI_Request request;
    const int made = MPI_Send_init(object.at, count, type, 0, 1, self, &request);
    if (made != MPI_SUCCESS) return made;
    cudaMemcpy(object.at, object.host.data(), kBytes, cudaMemcpyHostToDevice);
    const int result = MPI_Start(&request);
    MPI_Request_free(&request);
    return result;
}
// The same for one of two; the other must not be started either.
int started_all(const Object& object) {
    std::vector<int> data(10);
    MPI_Request both[2];
    const int made = MPI_Send_init(object.at, 10, MPI_INT, 0, 1, self, &both[1]);
    if (made != MPI_SUCCESS) return made;
    MPI_Send_init(data.data(), 10, MPI_INT, 0, 1, self, &both[0]);
    cudaMemcpy(object.at, object.host.data(), kBytes, cudaMemcpyHostToDevice);
    const int result = MPI_Startall(2, both);
    for (auto& request : both) MPI_Request_free(&request);
    return result;
}

// Receives ten ints into the midst of a block, or into gaps, in some way. MPI has them; libhpe cannot store them.
template <class Receive>
int received(int ints, Receive&& receive) {
    MPI_Request out;
    to_self(&out, ints);
    const int result = receive();
    MPI_Wait(&out, MPI_STATUS_IGNORE);
    return result;
}
int later(const Object& object, int count, MPI_Datatype type, int ints,
          const std::function<int(MPI_Request*)>& complete) {
    MPI_Request in, out;
    MPI_Irecv(object.at + 5, count, type, 0, 1, self, &in);
    to_self(&out, ints);
    const int result = complete(&in);
    MPI_Wait(&out, MPI_STATUS_IGNORE);
    return in == MPI_REQUEST_NULL ? result : MPI_SUCCESS;
}
int tested(MPI_Request* in) {
    int done = 0, result = MPI_SUCCESS;
    while (!done && result == MPI_SUCCESS) result = MPI_Test(in, &done, MPI_STATUS_IGNORE);
    return result;
}
int any(MPI_Request* in) {
    int index;
    return MPI_Waitany(1, in, &index, MPI_STATUS_IGNORE);
}
int some(MPI_Request* in) {
    int count, index;
    return MPI_Waitsome(1, in, &count, &index, MPI_STATUSES_IGNORE);
}

int window_call(const Object& object, bool put) {
    int* shared;
    MPI_Win window;
    MPI_Win_allocate(4096, 4, MPI_INFO_NULL, self, &shared, &window);
    shared[0] = 77;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
    int result = put ? MPI_Put(object.at, 10, MPI_INT, 0, 0, 10, MPI_INT, window)
                     : MPI_Get(object.at + 5, 10, MPI_INT, 0, 0, 10, MPI_INT, window);
    const int unlocked = MPI_Win_unlock(0, window);
    if (result == MPI_SUCCESS) result = unlocked;
    if (put && shared[0] != 77) result = MPI_SUCCESS;
    MPI_Win_free(&window);
    return result;
}

int other[kInts];

#if MPI_VERSION >= 4
// Four partitions of ten ints, sent to this rank itself. Those that cannot be had stay with it for good.
int partitions(const Object& object, const std::function<int(MPI_Request)>& ready) {
    MPI_Request out;
    const int made = MPI_Psend_init(object.at, 4, 10, MPI_INT, 0, 1, self, MPI_INFO_NULL, &out);
    if (made != MPI_SUCCESS || MPI_Start(&out) != MPI_SUCCESS) return MPI_SUCCESS;
    return ready(out);
}
int ready_list(MPI_Request out) {
    int list[2] = {2, 1};
    return MPI_Pready_list(2, list, out);
}

// One that has arrived cannot be stored; the others fail with the request.
int arrived(const Object& object) {
    static std::vector<int> data(20, -1);
    MPI_Request in, out;
    MPI_Precv_init(object.at + 5, 2, 10, MPI_INT, 0, 2, self, MPI_INFO_NULL, &in);
    MPI_Psend_init(data.data(), 2, 10, MPI_INT, 0, 2, self, MPI_INFO_NULL, &out);
    MPI_Start(&in);
    MPI_Start(&out);
    MPI_Pready_range(0, 1, out);
    int flag = 0, result = MPI_SUCCESS;
    while (flag == 0 && result == MPI_SUCCESS) result = MPI_Parrived(in, 1, &flag);
    MPI_Wait(&out, MPI_STATUS_IGNORE);
    if (MPI_Wait(&in, MPI_STATUS_IGNORE) == MPI_SUCCESS) result = MPI_SUCCESS;
    MPI_Request_free(&in);
    MPI_Request_free(&out);
    return result;
}
#endif

const std::map<std::string, std::function<int(const Object&)>> cases = {
    {"send", [](const Object& o) { return MPI_Send(o.at, kInts, MPI_INT, 0, 1, self); }},
    {"send_gaps", [](const Object& o) { return MPI_Send(o.at, 1, gaps, 0, 1, self); }},
    {"isend",
     [](const Object& o) {
         MPI_Request request = MPI_REQUEST_NULL;
         const int result = MPI_Isend(o.at, 10, MPI_INT, 0, 1, self, &request);
         return request == MPI_REQUEST_NULL ? result : MPI_SUCCESS;
     }},
    {"replace",
     [](const Object& o) { return MPI_Sendrecv_replace(o.at, 10, MPI_INT, 0, 1, 0, 1, self, MPI_STATUS_IGNORE); }},
    {"replace_gaps",
     [](const Object& o) { return MPI_Sendrecv_replace(o.at, 1, gaps, 0, 1, 0, 1, self, MPI_STATUS_IGNORE); }},
    {"exchange",
     [](const Object& o) {
         return MPI_Sendrecv(o.at, 10, MPI_INT, 0, 1, other, 10, MPI_INT, 0, 1, self, MPI_STATUS_IGNORE);
     }},
    {"broadcast", [](const Object& o) { return MPI_Bcast(o.at, 10, MPI_INT, 0, self); }},
    {"reduce", [](const Object& o) { return MPI_Allreduce(MPI_IN_PLACE, o.at, 10, MPI_INT, MPI_SUM, self); }},
    {"start", [](const Object& o) { return started(o, 10, MPI_INT); }},
    {"start_gaps", [](const Object& o) { return started(o, 1, gaps); }},
    {"start_all", [](const Object& o) { return started_all(o); }},
    {"window",
     [](const Object& o) {
         MPI_Win window;
         return MPI_Win_create(o.at, kBytes, 4, MPI_INFO_NULL, self, &window);
     }},
    {"put", [](const Object& o) { return window_call(o, true); }},
    {"get", [](const Object& o) { return window_call(o, false); }},
    {"receive",
     [](const Object& o) {
         return received(10, [&] { return MPI_Recv(o.at + 5, 10, MPI_INT, 0, 1, self, MPI_STATUS_IGNORE); });
     }},
    // Stored by the CPU's accesses: the device cannot serve them, and they end the process.
    {"trap_receive",
     [](const Object& o) {
         return received(1000, [&] { return MPI_Recv(o.at + 5, 1, gaps, 0, 1, self, MPI_STATUS_IGNORE); });
     }},
    {"trap_receive_part",
     [](const Object& o) {
         return received(10, [&] { return MPI_Recv(o.at + 5, 1, gaps, 0, 1, self, MPI_STATUS_IGNORE); });
     }},
    {"receive_later",
     [](const Object& o) {
         return received(10, [&] {
             MPI_Request in = MPI_REQUEST_NULL;
             int there = 0;
             while (!there) MPI_Iprobe(0, 1, self, &there, MPI_STATUS_IGNORE);
             const int result = MPI_Irecv(o.at + 5, 10, MPI_INT, 0, 1, self, &in);
             return result == MPI_SUCCESS ? MPI_Wait(&in, MPI_STATUS_IGNORE) : result;
         });
     }},
    {"wait",
     [](const Object& o) {
         return later(o, 10, MPI_INT, 10, [](MPI_Request* in) { return MPI_Wait(in, MPI_STATUS_IGNORE); });
     }},
    {"trap_wait",
     [](const Object& o) {
         return later(o, 1, gaps, 1000, [](MPI_Request* in) { return MPI_Wait(in, MPI_STATUS_IGNORE); });
     }},
    {"wait_all",
     [](const Object& o) {
         return later(o, 10, MPI_INT, 10, [](MPI_Request* in) { return MPI_Waitall(1, in, MPI_STATUSES_IGNORE); });
     }},
    {"wait_any", [](const Object& o) { return later(o, 10, MPI_INT, 10, any); }},
    {"wait_some", [](const Object& o) { return later(o, 10, MPI_INT, 10, some); }},
    {"test", [](const Object& o) { return later(o, 10, MPI_INT, 10, tested); }},
#if MPI_VERSION >= 4
    {"ready", [](const Object& o) { return partitions(o, [](MPI_Request out) { return MPI_Pready(3, out); }); }},
    {"ready_range",
     [](const Object& o) { return partitions(o, [](MPI_Request out) { return MPI_Pready_range(0, 2, out); }); }},
    {"ready_list", [](const Object& o) { return partitions(o, ready_list); }},
    {"arrived", arrived},
#endif
};

}  // namespace

int main(int argc, char** argv) {
    if (argc == 1) {
        for (const auto& each : cases) std::puts(each.first.c_str());
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    for (MPI_Comm one : {MPI_COMM_WORLD, MPI_COMM_SELF, self}) MPI_Comm_set_errhandler(one, MPI_ERRORS_RETURN);
    MPI_Type_vector(1000, 1, 3, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    int wrong = 0;
    for (int i = 1; i < argc; ++i) {
        if (std::strcmp(argv[i], "fatal") == 0) {
            for (MPI_Comm one : {MPI_COMM_SELF, self}) MPI_Comm_set_errhandler(one, MPI_ERRORS_ARE_FATAL);
            continue;
        }
        const Object object(3);
        const int result = cases.at(argv[i])(object);
        int error = MPI_SUCCESS, flag = 0;
        MPI_Error_class(result, &error);
        // Nothing is on its way.
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, self, &flag, MPI_STATUS_IGNORE);
        const bool kept = object.as_it_was(), good = error == MPI_ERR_OTHER && flag == 0 && kept;
        wrong += !good;
        std::printf("rank 0, %s: class %d of %d%s%s: %d wrong\n", argv[i], error, MPI_ERR_OTHER,
                    flag ? ", something is sent" : "", kept ? "" : ", bytes changed", !good);
    }
    std::fflush(stdout);
    MPI_Type_free(&gaps);
    MPI_Comm_free(&self);
    MPI_Finalize();
    return wrong;
}
