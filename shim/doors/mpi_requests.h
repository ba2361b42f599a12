// SPDX-License-Identifier: MIT
// Doors of the functions that start, complete and end requests: what libhpe knows of each request (mpi/pending.h) is
// done when MPI says that it has completed. Calls in a process without such requests are passed on.
//
// Arrays are the program's. Threads: as of MPI; no two complete one request. Errors: MPI's.
#pragma once

#include "shim/mpi/abi.h"

namespace hpe::doors::HPE_MPI_ABI {

int start(MPI_Request* request);
int start_all(int count, MPI_Request* requests);
int wait(MPI_Request* request, MPI_Status* status);
int test(MPI_Request* request, int* done, MPI_Status* status);
int wait_all(int count, MPI_Request* requests, MPI_Status* statuses);
int test_all(int count, MPI_Request* requests, int* done, MPI_Status* statuses);
int wait_any(int count, MPI_Request* requests, int* index, MPI_Status* status);
int test_any(int count, MPI_Request* requests, int* index, int* done, MPI_Status* status);
int wait_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses);
int test_some(int count, MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses);
int get_status(MPI_Request request, int* done, MPI_Status* status);
int get_status_all(int count, const MPI_Request* requests, int* done, MPI_Status* statuses);
int get_status_any(int count, const MPI_Request* requests, int* index, int* done, MPI_Status* status);
int get_status_some(int count, const MPI_Request* requests, int* completed, int* indices, MPI_Status* statuses);
int free_request(MPI_Request* request);

}  // namespace hpe::doors::HPE_MPI_ABI
