// SPDX-License-Identifier: MIT
// Who may access whose memory: an entry per direction.
#include "shim/transfer/peers.h"

#include <cstring>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/driver/inflight.h"

namespace hpe {

constinit Peers peers;

namespace {

bool device_of(CUcontext context, CUdevice& device) noexcept {
    ContextScope scope(context);
    return scope.result() == CUDA_SUCCESS && driver.cuCtxGetDevice(&device) == CUDA_SUCCESS;
}

// Whether one device reaches the other's memory over NVLink.
bool reaches(CUdevice from, CUdevice to) noexcept {
    int can = 0, atomics = 0;
    return driver.cuDeviceCanAccessPeer(&can, from, to) == CUDA_SUCCESS && can != 0 &&
           driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to) ==
               CUDA_SUCCESS &&
           atomics != 0;
}

bool joined(CUcontext a, CUcontext b) noexcept {
    CUdevice one = 0, other = 0;
    return device_of(a, one) && device_of(b, other) && one != other && reaches(one, other) && reaches(other, one);
}

}  // namespace

void Peers::saw_another(CUcontext context) noexcept {
    CUcontext first = nullptr;
    // Another thread may have seen the first one just now.
    if (first_seen_.compare_exchange_strong(first, context, std::memory_order_relaxed) || first == context) return;
    several_.store(true, std::memory_order_relaxed);
}

Peers::Access* Peers::find(CUcontext from, CUcontext to) noexcept {
    for (std::size_t i = 0; i < used_; ++i) {
        auto& access = accesses_[i];
        if (access.state != State::None && access.from == from && access.to == to) return &access;
    }
    return nullptr;
}

// Finds or makes an entry; a new one is None. nullptr: the table is full.
Peers::Access* Peers::entry(CUcontext from, CUcontext to) noexcept {
    if (Access* known = find(from, to)) return known;
    std::size_t place = 0;
    while (place < used_ && accesses_[place].state != State::None) ++place;
    if (place == kMost) return nullptr;
    if (place == used_) ++used_;
    accesses_[place] = {from, to};
    return &accesses_[place];
}

void Peers::set(Access& access, State state) noexcept {
    const auto count = [](State s, State counted) { return s == counted ? 1u : 0u; };
    // Unsigned arithmetic wraps: a difference of -1 is added correctly.
    wanted_.fetch_add(count(state, State::Wanted) - count(access.state, State::Wanted), std::memory_order_relaxed);
    ours_.fetch_add(count(state, State::Ours) - count(access.state, State::Ours), std::memory_order_relaxed);
    access.state = state;
}

// A new entry: remembers what the driver says of the memory while there is no access.
void Peers::consider(Access& access, CUdeviceptr memory, bool possible) noexcept {
    if (access.state != State::None) return;
    ContextScope scope(access.from);
    if (!possible || scope.result() != CUDA_SUCCESS) return set(access, State::Never);
    CUdeviceptr pointer = 0;
    const auto ask = [&](void* data, CUpointer_attribute attribute) {
        return driver.cuPointerGetAttribute(data, attribute, memory);
    };
    access.pointer = ask(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
    access.flags_known = ask(&access.flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS);
    set(access, State::Wanted);
}

void Peers::before_copy(Side to, Side from) noexcept {
    if (in_flight.capturing_anywhere()) return;
    if (!mutex_.try_lock()) return;  // another thread is at work here; this copy goes the driver's way
    const Locked lock(mutex_, std::adopt_lock);
    Inside inside;
    Access* there = entry(to.context, from.context);
    if (there == nullptr) return;
    // Not None for a moment, so that the other direction gets another entry.
    const bool fresh = there->state == State::None;
    if (fresh) there->state = State::Never;
    Access* back = entry(from.context, to.context);
    if (fresh) there->state = State::None;
    if (back == nullptr) return;
    if (fresh || back->state == State::None) {
        const bool possible = joined(to.context, from.context);
        consider(*there, from.address, possible);
        consider(*back, to.address, possible);
    }
    if ((there->state == State::Wanted || back->state == State::Wanted) && in_flight.idle()) enable_pair(*there, *back);
}

void Peers::enable_pair(Access& there, Access& back) noexcept {
    const CaptureRelaxed relaxed;
    if (!relaxed.sure()) return;
    const auto enable = [&](Access& access, const Access& other) {
        mutex_.assume_held();
        if (access.state != State::Wanted) return;
        if (other.state == State::Never) return set(access, State::Never);
        ContextScope scope(access.from);
        const auto result =
            scope.result() == CUDA_SUCCESS ? driver.cuCtxEnablePeerAccess(access.to, 0) : scope.result();
        if (result == CUDA_SUCCESS) {
            log::debug("copies between contexts {} and {} can go directly", static_cast<const void*>(access.from),
                       static_cast<const void*>(access.to));
            set(access, State::Ours);
        } else if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
            set(access, State::Programs);
        } else {
            log::debug("no peer access for copies: {}", error_name(result));
            set(access, State::Never);
        }
    };
    enable(there, back);
    enable(back, there);
}

// After 64 attempts only every 64th wait: asking whether the device is idle costs some tens of microseconds.
void Peers::enable_wanted() noexcept {
    const auto turn = waits_.fetch_add(1, std::memory_order_relaxed);
    if ((turn >= 64 && turn % 64 != 0) || in_flight.capturing_anywhere()) return;
    if (!mutex_.try_lock()) return;
    const Locked lock(mutex_, std::adopt_lock);
    Inside inside;
    if (!in_flight.idle_after_wait()) return;
    for (std::size_t i = 0; i < used_; ++i) {
        if (accesses_[i].state != State::Wanted) continue;
        Access* back = find(accesses_[i].to, accesses_[i].from);
        if (back != nullptr) enable_pair(accesses_[i], *back);
    }
}

// The program needs entries of the driver's limited table: disables all access that libhpe enabled, for good, once the
// copies that use it are done.
bool Peers::give_up_all() noexcept {
    if (ours_.load(std::memory_order_relaxed) == 0) return false;
    Inside inside;
    in_flight.wait();
    bool any = false;
    for (std::size_t i = 0; i < used_; ++i) {
        auto& access = accesses_[i];
        if (access.state == State::Wanted) set(access, State::Never);
        if (access.state != State::Ours) continue;
        ContextScope scope(access.from);
        // Access that cannot be disabled must stay hidden.
        if (scope.result() != CUDA_SUCCESS || driver.cuCtxDisablePeerAccess(access.to) != CUDA_SUCCESS) {
            continue;
        }
        set(access, State::Never);
        any = true;
    }
    return any;
}

bool Peers::hidden(CUcontext from, CUcontext to) noexcept {
    const Access* access = find(from, to);
    return access != nullptr && access->state == State::Ours;
}

// The program disables access that libhpe enabled: it stays, since copies under way may be using it. Enabling it again
// has no effect, and fails as every call does if the context is lost.
CUresult Peers::refuse_to_disable(CUcontext peer) noexcept {
    Inside inside;
    const auto result = driver.cuCtxEnablePeerAccess(peer, 0);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : result;
}

CUresult Peers::enabled_by_program(CUcontext current, CUcontext peer, CUresult result) noexcept {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return result;
    Access* access = entry(current, peer);
    if (access == nullptr) return result;
    const bool was_ours = access->state == State::Ours;
    set(*access, State::Programs);
    return was_ours ? CUDA_SUCCESS : result;
}

CUresult Peers::disabled_by_program(CUcontext current, CUcontext peer, CUresult result) noexcept {
    if (result != CUDA_SUCCESS) return result;
    Access* access = entry(current, peer);
    if (access == nullptr) return result;
    set(*access, State::Never);
    Access* back = find(peer, current);
    if (back != nullptr && back->state == State::Wanted) set(*back, State::Never);
    return result;
}

CUresult Peers::make_truthful(CUresult result, CUpointer_attribute attribute, void* data, CUcontext owner,
                              bool several) noexcept {
    if (ours_.load(std::memory_order_relaxed) == 0 || result != CUDA_SUCCESS || data == nullptr) return result;
    if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_POINTER && attribute != CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) {
        return result;
    }
    const Locked lock(mutex_);
    const Access* access = find(current_context(), owner);
    if (access == nullptr || access->state != State::Ours) return result;
    const bool flags = attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS;
    const auto before = flags ? access->flags_known : access->pointer;
    if (before != CUDA_SUCCESS && !several) return before;
    const CUdeviceptr nothing = 0;
    if (flags) {
        std::memcpy(data, &access->flags, sizeof access->flags);
    } else if (before != CUDA_SUCCESS) {
        std::memcpy(data, &nothing, sizeof nothing);
    }
    return result;
}

void Peers::ending(CUcontext context) noexcept {
    if (!several_contexts()) return;
    const Locked lock(mutex_);
    for (std::size_t i = 0; i < used_; ++i) {
        auto& access = accesses_[i];
        if (access.state == State::Wanted && (access.from == context || access.to == context)) set(access, State::None);
    }
}

void Peers::forget(CUcontext context) noexcept {
    const Locked lock(mutex_);
    for (std::size_t i = 0; i < used_; ++i) {
        if (accesses_[i].from == context || accesses_[i].to == context) set(accesses_[i], State::None);
    }
}

}  // namespace hpe
