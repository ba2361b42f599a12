// SPDX-License-Identifier: MIT
// A persistent request whose message is made of partitions (MPI_Psend_init, MPI_Precv_init). One that is sent is loaded
// when the program says that it is ready; one that is received is stored when MPI says that it has arrived, the others
// when the request completes, and each once: the program may use what it has seen to be there.
//
// Threads: several may make partitions of one request ready, and ask for them, while another one completes it. So these
// are found without being taken out of a table, and kept until the request is freed. The lock of a request is held
// while a partition is stored, which waits for device work.
//
// Source: MPI 4.1, section 4.2. Errors: what cannot be loaded or stored is a line, and false.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "shim/base/mutex.h"
#include "shim/mpi/call_buffers.h"

namespace hpe::mpi::HPE_MPI_ABI {

class Partitions {
public:
    // Of a message that has none: none. The buffers stay where they are. Without memory: false.
    static bool make(CallBuffers& buffers, std::unique_ptr<Partitions>& to) noexcept;
    ~Partitions();
    Partitions(const Partitions&) = delete;
    Partitions& operator=(const Partitions&) = delete;

    // From now on it is found by MPI's handle.
    void made(MPI_Request request) noexcept;
    // Of a handle that is not known: nothing.
    static Partitions* find(MPI_Request request) noexcept;

    void start() noexcept;
    // Of a partition that there is not: nothing, MPI finds that.
    bool load(int partition) noexcept { return load(partition, partition); }
    bool load(int first, int last) noexcept;
    bool store(int partition) noexcept;
    // The request has completed: stores the rest.
    bool finish() noexcept;
    // The same with an error, or not started at all: nothing is to be stored.
    void end() noexcept;

    Partitions* next = nullptr;  // ShortList's

private:
    Partitions(CallBuffers& buffers, std::unique_ptr<bool[]> there) noexcept;
    bool store_once(int partition) noexcept;

    CallBuffers& buffers_;
    Mutex mutex_;
    const std::unique_ptr<bool[]> there_;  // nothing of it is to be stored
    MPI_Request request_{};
};

}  // namespace hpe::mpi::HPE_MPI_ABI
