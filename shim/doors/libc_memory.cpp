// SPDX-License-Identifier: MIT
// Doors of bulk memory calls.
//
// Handled: memcpy, mempcpy, memmove, bcopy, memset, bzero and their fortified names. Where the bytes of a large call
// lie on the device it is made there, as the program's own cudaMemcpy or cudaMemset would be, and waited for; all else
// is the next memmove or memset, whose accesses fault. String functions, memcmp, qsort and the like have no door: their
// faults are served.
//
// memcpy is the next memmove: programs linked before glibc 2.14 rely on a memcpy that may overlap, and in glibc both
// are one function.
//
// Threads: any. In a signal handler a large call on an object may deadlock, as CUDA calls do there. Errors: none; the
// fortified names end the process as libc does.
#include <atomic>

#include "shim/coherence/lease.h"
#include "shim/copies/bulk.h"
#include "shim/doors/cuda_copy.h"
#include "shim/doors/libc_door.h"
#include "shim/doors/touch.h"

using namespace hpe;
using namespace hpe::doors;

namespace {

// The next functions, found by their first calls: what is not ours costs a comparison and a jump.
using Move = void*(void*, const void*, std::size_t);
using Set = void*(void*, int, std::size_t);
Move first_move;
Set first_set;
constinit std::atomic<Move*> next_move{first_move};
constinit std::atomic<Set*> next_set{first_set};
Move* mover() noexcept { return next_move.load(std::memory_order_relaxed); }
Set* setter() noexcept { return next_set.load(std::memory_order_relaxed); }
void* first_move(void* to, const void* from, std::size_t bytes) {
    next_move.store(reinterpret_cast<Move*>(next_function("memmove")), std::memory_order_relaxed);
    return mover()(to, from, bytes);
}
void* first_set(void* to, int value, std::size_t bytes) {
    next_set.store(reinterpret_cast<Set*>(next_function("memset")), std::memory_order_relaxed);
    return setter()(to, value, bytes);
}
constinit Next<void*(void*, const void*, std::size_t, std::size_t)> next_copy_chk{"__memcpy_chk"},
    next_move_chk{"__memmove_chk"};
constinit Next<void*(void*, int, std::size_t, std::size_t)> next_set_chk{"__memset_chk"};

// The driver's call behind a door of copies or memsets.
template <class Function>
struct DriverCall {
    Function* real;
    Flavour flavour = Flavour::Legacy;
    template <class... A>
    CUresult operator()(A... arguments) const {
        const Inside inside;
        return real(arguments...);
    }
};
template <class Function>
DriverCall(Function*) -> DriverCall<Function>;

// The device has its work; the program finds it done, in every stream.
bool done(CUresult enqueued) noexcept {
    if (enqueued != CUDA_SUCCESS) return false;
    const auto mark = in_flight.mark(nullptr, Flavour::Legacy);
    const Inside inside;
    if (driver.cuStreamSynchronize(CU_STREAM_LEGACY) != CUDA_SUCCESS) return false;
    in_flight.finished(mark);
    return true;
}

bool on_device(const char* at) noexcept { return is_object(at) || uncached::stretch(address(at), 1).uncached; }

bool copy_on_device(char* to, const char* from, const bulk::Stretch& stretch) noexcept {
    if (!on_device(from)) touch_to_read(from, stretch.bytes);
    if (!on_device(to)) touch_to_write(to, stretch.bytes);
    const bulk::InOrder in_order(stretch.context);
    return in_order && done(copy_unified(DriverCall{driver.cuMemcpy}, address(to), address(from), stretch.bytes));
}

bool set_on_device(char* to, int value, const bulk::Stretch& stretch) noexcept {
    const bulk::InOrder in_order(stretch.context);
    return in_order && done(memset_linear(DriverCall{driver.cuMemsetD8_v2}, address(to),
                                          static_cast<unsigned char>(value), stretch.bytes));
}

bool overlap(const char* a, const char* b, std::size_t bytes) noexcept {
    return static_cast<std::size_t>(a < b ? b - a : a - b) < bytes;
}

[[gnu::noinline]] void* move_large(char* to, const char* from, std::size_t bytes) noexcept {
    if ((!lease::concerns(to, bytes) && !lease::concerns(from, bytes)) || overlap(to, from, bytes)) {
        return mover()(to, from, bytes);
    }
    for (std::size_t at = 0; at < bytes;) {
        const auto stretch = bulk::next(address(to + at), address(from + at), bytes - at);
        if (stretch.context == nullptr || !copy_on_device(to + at, from + at, stretch)) {
            mover()(to + at, from + at, stretch.bytes);
        }
        at += stretch.bytes;
    }
    return to;
}

[[gnu::noinline]] void* set_large(char* to, int value, std::size_t bytes) noexcept {
    if (!lease::concerns(to, bytes)) return setter()(to, value, bytes);
    for (std::size_t at = 0; at < bytes;) {
        const auto stretch = bulk::next(address(to + at), 0, bytes - at);
        if (stretch.context == nullptr || !set_on_device(to + at, value, stretch)) {
            setter()(to + at, value, stretch.bytes);
        }
        at += stretch.bytes;
    }
    return to;
}

inline void* move(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes < bulk::kSmallest) [[likely]]
        return mover()(to, from, bytes);
    return move_large(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}
inline void* set(void* to, int value, std::size_t bytes) noexcept {
    if (bytes < bulk::kSmallest) [[likely]]
        return setter()(to, value, bytes);
    return set_large(static_cast<char*>(to), value, bytes);
}

}  // namespace

// Under names of their own: the compiler knows the functions of libc by theirs, and would call one door from another.
#define HPE_MEMORY_DOOR(result, name, ...)                   \
    HPE_DOOR result door_##name(__VA_ARGS__) __asm__(#name); \
    result door_##name(__VA_ARGS__)

extern "C" {

HPE_MEMORY_DOOR(void*, memcpy, void* to, const void* from, std::size_t bytes) { return move(to, from, bytes); }
HPE_MEMORY_DOOR(void*, memmove, void* to, const void* from, std::size_t bytes) { return move(to, from, bytes); }
HPE_MEMORY_DOOR(void*, mempcpy, void* to, const void* from, std::size_t bytes) {
    return static_cast<char*>(move(to, from, bytes)) + bytes;
}
HPE_MEMORY_DOOR(void*, __mempcpy, void* to, const void* from, std::size_t bytes) {
    return static_cast<char*>(move(to, from, bytes)) + bytes;
}
HPE_MEMORY_DOOR(void, bcopy, const void* from, void* to, std::size_t bytes) { move(to, from, bytes); }
HPE_MEMORY_DOOR(void*, memset, void* to, int value, std::size_t bytes) { return set(to, value, bytes); }
HPE_MEMORY_DOOR(void, bzero, void* to, std::size_t bytes) { set(to, 0, bytes); }

// `room`: what the compiler knows the memory to have.
HPE_MEMORY_DOOR(void*, __memcpy_chk, void* to, const void* from, std::size_t bytes, std::size_t room) {
    return bytes > room ? next_copy_chk(to, from, bytes, room) : move(to, from, bytes);
}
HPE_MEMORY_DOOR(void*, __memmove_chk, void* to, const void* from, std::size_t bytes, std::size_t room) {
    return bytes > room ? next_move_chk(to, from, bytes, room) : move(to, from, bytes);
}
HPE_MEMORY_DOOR(void*, __mempcpy_chk, void* to, const void* from, std::size_t bytes, std::size_t room) {
    return static_cast<char*>(bytes > room ? next_copy_chk(to, from, bytes, room) : move(to, from, bytes)) + bytes;
}
HPE_MEMORY_DOOR(void*, __memset_chk, void* to, int value, std::size_t bytes, std::size_t room) {
    return bytes > room ? next_set_chk(to, value, bytes, room) : set(to, value, bytes);
}

}  // extern "C"
