// SPDX-License-Identifier: MIT
// Every MPI call twice: with host buffers, and with device buffers of the same content. Afterwards every byte of the
// buffers and everything that the calls said must be equal. A rank without a device uses host buffers both times.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C++ bindings would want a library of their own
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

struct Twins {
    int rank = 0, ranks = 0;
    bool device = true;
    MPI_Comm host_comm = MPI_COMM_NULL, device_comm = MPI_COMM_NULL;
    std::mt19937 same;  // draws the same on all ranks
    std::mt19937 own;
    long wrong = 0, calls = 0;
    std::string what;

    explicit Twins(unsigned seed) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        MPI_Comm_dup(MPI_COMM_WORLD, &host_comm);
        MPI_Comm_dup(MPI_COMM_WORLD, &device_comm);
        same.seed(seed);
        own.seed(seed * 1000 + static_cast<unsigned>(rank) + 1);
        device = std::getenv("WITHOUT_DEVICE") == nullptr;
    }
    int pick(int n) { return static_cast<int>(same() % static_cast<unsigned>(n)); }
    int pick_own(int n) { return static_cast<int>(own() % static_cast<unsigned>(n)); }

    void complain(const std::string& problem) {
        if (wrong++ < 10) std::printf("rank %d: %s: %s\n", rank, what.c_str(), problem.c_str());
    }
    int finish() {
        std::printf("rank %d: %ld calls, %ld wrong\n", rank, calls, wrong);
        MPI_Comm_free(&host_comm);
        MPI_Comm_free(&device_comm);
        return wrong != 0;
    }
};

using Cases = std::map<std::string, std::function<void(Twins&)>>;

// The main function: `program CASE...`, with the cases from the argument `first` on; without arguments it prints their
// names. Unlisted cases are for special runs.
inline int run_cases(int argc, char** argv, const Cases& cases, unsigned seed, int level = MPI_THREAD_SINGLE,
                     int first = 1, const Cases& unlisted = {}) {
    if (argc == 1) {
        for (const auto& each : cases) std::puts(each.first.c_str());
        return 0;
    }
    int provided = 0, wrong = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    {
        Twins w(seed);
        for (int i = first; i < argc; ++i) {
            w.what = argv[i];
            (cases.count(argv[i]) != 0 ? cases : unlisted).at(argv[i])(w);
        }
        wrong = w.finish();
    }
    MPI_Finalize();
    return wrong;
}

// A buffer and its twin.
class Pair {
public:
    Pair(Twins& twins, std::size_t bytes) : twins_(twins), bytes_(bytes), host_(bytes) {
        for (auto& byte : host_) byte = static_cast<char>(twins_.own());
        if (!twins_.device) {
            device_ = static_cast<char*>(std::malloc(bytes));
            std::memcpy(device_, host_.data(), bytes);
            return;
        }
        void* memory = nullptr;
        if (cudaMalloc(&memory, bytes) != cudaSuccess) std::abort();
        device_ = static_cast<char*>(memory);
        // The newest bytes are on the device, on the host, or here and there.
        cudaMemcpy(device_, host_.data(), bytes, cudaMemcpyHostToDevice);
        switch (twins_.pick_own(4)) {
            case 0: std::memcpy(device_, host_.data(), bytes); break;
            case 1: std::memset(device_ + bytes / 2, 0, bytes / 4), std::memcpy(device_, host_.data(), bytes); break;
            case 2:
                for (std::size_t at = 0; at < bytes; at += 20000) device_[at] = host_[at];
                break;
            default: break;
        }
    }
    ~Pair() {
        if (twins_.device)
            cudaFree(device_);
        else
            std::free(device_);
    }
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    char* host() { return host_.data(); }
    char* device() { return device_; }
    std::size_t bytes() const { return bytes_; }
    void check(const char* name) {
        std::vector<char> now(bytes_);
        if (twins_.device && twins_.pick_own(2) == 0)
            cudaMemcpy(now.data(), device_, bytes_, cudaMemcpyDeviceToHost);
        else
            std::memcpy(now.data(), device_, bytes_);
        for (std::size_t at = 0; at < bytes_; ++at) {
            if (now[at] == host_[at]) continue;
            twins_.complain(std::string(name) + " differs at " + std::to_string(at) + " of " + std::to_string(bytes_));
            return;
        }
    }

private:
    Twins& twins_;
    const std::size_t bytes_;
    std::vector<char> host_;
    char* device_ = nullptr;
};

// What the calls said, as numbers.
using Said = std::vector<long>;

inline void say_status(Said& said, const MPI_Status& status, MPI_Datatype type) {
    int count = 0, elements = 0, cancelled = 0;
    MPI_Test_cancelled(&status, &cancelled);
    said.push_back(cancelled);
    if (cancelled) return;
    MPI_Get_count(&status, type, &count);
    MPI_Get_elements(&status, type, &elements);
    said.insert(said.end(), {count, elements, status.MPI_SOURCE, status.MPI_TAG});
}

// call(communicator, send buffer, receive buffer, said)
template <class Call>
void both(Twins& twins, Pair& send, Pair& receive, Call&& call) {
    Said on_host, on_device;
    call(twins.host_comm, send.host(), receive.host(), on_host);
    call(twins.device_comm, send.device(), receive.device(), on_device);
    ++twins.calls;
    if (on_host != on_device) {
        std::string text = "other answers:";
        for (long n : on_host) text += " " + std::to_string(n);
        text += " and";
        for (long n : on_device) text += " " + std::to_string(n);
        twins.complain(text);
    }
    send.check("what was sent");
    receive.check("what was received");
}
