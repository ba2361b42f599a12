// SPDX-License-Identifier: MIT
// Direct copies between GPUs for programs that never enabled peer access. The driver makes such copies through the
// host, at a tenth of NVLink's speed; once both contexts of a copy have access to each other it copies directly. So
// libhpe enables peer access for the copies, and hides it: the program's own cuCtxEnablePeerAccess,
// cuCtxDisablePeerAccess and queries of pointers are answered as they would be without libhpe.
//
// Both directions are enabled: which of them a copy needs depends on the stream it is made in, and cuda.h does not say.
//
// Only where all atomic operations work between the two devices, that is, over NVLink. Over PCIe there is little to
// win, and with an IOMMU that translates on bare metal the driver claims peer access all the same, while the bytes get
// lost without an error (CUDA C++ Programming Guide, "IOMMU on Linux").
//
// Only while the device has nothing to do: mapping memory may wait for work under way, and that work for the program (a
// host function, a value in memory). Otherwise libhpe tries again when the program has waited (waited()).
//
// Only memory of cuMemAlloc: access to pools and virtual memory is granted in other ways, which stay the program's.
//
// Threads: any, but neither in the fault path nor in host callbacks. A copy waits for no other thread here. Contexts
// are the program's. Errors: none of ours reaches the program: the pair is left to the driver's own way for good.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "shim/base/mutex.h"
#include "shim/driver/driver.h"

namespace hpe {

class Peers {
public:
    // Of a copy. The host's way takes 28 us for 1 MiB, the direct one 13; mapping what the two devices hold costs some
    // tens of us per allocation, each way and once. Below that size the fixed cost of a copy is most of its time.
    static constexpr std::size_t kWorthwhile = std::size_t{1} << 20;

    // An object was made in the context.
    void saw(CUcontext context) noexcept {
        if (first_seen_.load(std::memory_order_relaxed) != context) saw_another(context);
    }
    // False, for good in most programs: no two objects lie in different contexts.
    bool several_contexts() const noexcept { return several_.load(std::memory_order_relaxed); }

    // The program is about to copy kWorthwhile bytes or more between the two sides. Outside the gate.
    struct Side {
        CUcontext context;
        CUdeviceptr address;
    };
    void before_copy(Side to, Side from) noexcept;

    // The program waited for the device.
    void waited() noexcept {
        if (wanted_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
            enable_wanted();
        }
    }

    // The program's own calls, answered as without libhpe. Access that the program enables is its own from then on.
    // Access that it disables stays disabled: its kernels get the error that they should, and copies go the driver's
    // way.
    template <class True>
    CUresult program_enables(CUcontext peer, True&& true_call) {
        const Locked lock(mutex_);
        const CUcontext current = current_context();
        CUresult result = true_call();
        if (result == CUDA_ERROR_TOO_MANY_PEERS && give_up_all()) result = true_call();
        return enabled_by_program(current, peer, result);
    }
    template <class True>
    CUresult program_disables(CUcontext peer, True&& true_call) {
        const Locked lock(mutex_);
        const CUcontext current = current_context();
        if (hidden(current, peer)) return refuse_to_disable(peer);
        return disabled_by_program(current, peer, true_call());
    }

    // Corrects the driver's answer about memory of `owner` for the current context. `several`: the program asked for
    // several attributes at once, where an attribute that is not available is 0.
    CUresult make_truthful(CUresult result, CUpointer_attribute attribute, void* data, CUcontext owner,
                           bool several) noexcept;

    // ending(): the context is about to end, and nothing of ours is begun in it. forget(): it has ended.
    void ending(CUcontext context) noexcept;
    void forget(CUcontext context) noexcept;

private:
    enum class State : unsigned char {
        None,      // the entry is free
        Wanted,    // possible, and to be enabled when the device is idle
        Ours,      // enabled by libhpe; the program does not know
        Programs,  // enabled by the program
        Never,     // impossible, failed, or disabled by the program
    };
    // Access of one context to the memory of another.
    struct Access {
        CUcontext from = nullptr, to = nullptr;
        State state = State::None;
        // What the driver said of that memory before there was access.
        CUresult pointer = CUDA_SUCCESS, flags_known = CUDA_SUCCESS;
        unsigned flags = 0;
    };
    static constexpr std::size_t kMost = 512;  // two for each pair of 16 contexts, with room for their successors

    Access* find(CUcontext from, CUcontext to) noexcept HPE_REQUIRES(mutex_);
    Access* entry(CUcontext from, CUcontext to) noexcept HPE_REQUIRES(mutex_);
    void set(Access& access, State state) noexcept HPE_REQUIRES(mutex_);
    void consider(Access& access, CUdeviceptr memory, bool possible) noexcept HPE_REQUIRES(mutex_);
    void enable_pair(Access& there, Access& back) noexcept HPE_REQUIRES(mutex_);
    void enable_wanted() noexcept;
    bool give_up_all() noexcept HPE_REQUIRES(mutex_);
    bool hidden(CUcontext from, CUcontext to) noexcept HPE_REQUIRES(mutex_);
    static CUresult refuse_to_disable(CUcontext peer) noexcept;
    CUresult enabled_by_program(CUcontext current, CUcontext peer, CUresult result) noexcept HPE_REQUIRES(mutex_);
    CUresult disabled_by_program(CUcontext current, CUcontext peer, CUresult result) noexcept HPE_REQUIRES(mutex_);

    void saw_another(CUcontext context) noexcept;

    std::atomic<CUcontext> first_seen_{nullptr};
    std::atomic<bool> several_{false};
    std::atomic<unsigned> wanted_{0}, ours_{0};  // entries in that state
    std::atomic<unsigned> waits_{0};             // while something was wanted
    Mutex mutex_;
    std::array<Access, kMost> accesses_ HPE_GUARDED_BY(mutex_);
    std::size_t used_ HPE_GUARDED_BY(mutex_) = 0;  // all entries from here on are None
};

extern constinit Peers peers;

}  // namespace hpe
