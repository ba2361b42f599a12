// SPDX-License-Identifier: MIT
// Elements of an MPI datatype in memory: where their bytes lie, and copying exactly those that the type names, in their
// places or packed. The device does that where the bytes lie on it alone, the CPU elsewhere.
//
// Source: MPI 4.1, sections 5.1 (type maps, lower bound, extent, true extent) and 5.1.11 (an element that came in part
// is the beginning of its type map).
//
// Offsets and sizes in bytes; types and memory are the caller's. Threads: any. Errors: a copy returns whether it was
// made; an object's bytes may be gone. Where gaps are left out of a store, or of a load from more than one object, an
// access that the device cannot serve ends as one of the program's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "shim/base/address.h"
#include "shim/coherence/lease.h"
#include "shim/copies/layout.h"
#include "shim/mpi/abi.h"

namespace hpe::mpi::HPE_MPI_ABI {

struct Span {
    std::uintptr_t begin = 0, end = 0;
    bool empty() const noexcept { return begin >= end; }
    std::size_t bytes() const noexcept { return end - begin; }
    void join(Span other) noexcept {
        if (other.empty()) return;
        if (empty()) {
            *this = other;
        } else {
            if (other.begin < begin) begin = other.begin;
            if (other.end > end) end = other.end;
        }
    }
};

// What is asked of a type once a call.
class Shape {
public:
    Shape() noexcept = default;
    // An empty one for no type, or one with an error: MPI itself shall find that.
    explicit Shape(MPI_Datatype type) noexcept;
    MPI_Count bytes() const noexcept { return bytes_; }
    MPI_Count extent() const noexcept { return extent_; }
    // From the first to behind the last byte of `count` elements at `at`.
    Span span(std::uintptr_t at, MPI_Count count) const noexcept {
        if (bytes_ <= 0 || count <= 0) return {};
        const auto last = (count - 1) * extent_;
        const auto first_byte = true_begin_ + std::min<MPI_Count>(last, 0);
        const auto end = true_begin_ + true_extent_ + std::max<MPI_Count>(last, 0);
        return {at + static_cast<std::uintptr_t>(first_byte), at + static_cast<std::uintptr_t>(end)};
    }
    // No byte of the span is left out.
    bool dense(MPI_Count count) const noexcept { return bytes_ == true_extent_ && (count == 1 || extent_ == bytes_); }

private:
    static Shape asked(MPI_Datatype type) noexcept;
    MPI_Count bytes_ = 0, extent_ = 0, true_begin_ = 0, true_extent_ = 0;
};

// Shapes of numbers and pairs of numbers that MPI was asked about before, whose handles mean the same for ever: to ask
// takes three calls of MPI's, and to ask for one of Fortran's, where there is no Fortran, may end the job.
class KnownShapes {
public:
    // nullptr: MPI has to be asked.
    const Shape* find(MPI_Datatype type) const noexcept {
        const auto& slot = slots_[place(type)];
        return slot.type.load(std::memory_order_acquire) == type && type != MPI_Datatype{} ? &slot.shape : nullptr;
    }
    // The first of a place stays.
    void add(MPI_Datatype type, const Shape& shape) noexcept {
        auto& slot = slots_[place(type)];
        if (slot.taken.test_and_set(std::memory_order_relaxed)) return;
        slot.shape = shape;
        slot.type.store(type, std::memory_order_release);
    }

private:
    static constexpr unsigned kPlaces = 8;  // by so many bits
    static std::size_t place(MPI_Datatype type) noexcept {
        return number(type) * 0x9E3779B97F4A7C15ull >> (64 - kPlaces);
    }

    struct Slot {
        std::atomic<MPI_Datatype> type{};
        std::atomic_flag taken = ATOMIC_FLAG_INIT;
        Shape shape;
    };
    std::array<Slot, 1u << kPlaces> slots_;
};
extern constinit KnownShapes known_shapes;

struct Elements {
    std::uintptr_t at = 0;
    MPI_Count count = 0;
    MPI_Datatype type{};
    Shape shape;
    bool keeps_type = false;
    // Of memory that is replaced: whether an object lies in it. Beside such parts there may be others.
    bool in_objects = false;
    Span span() const noexcept { return shape.span(at, count); }
    // The program may end the type before these elements are done with: they get one of their own, without the
    // program's attributes, whose functions are not called. Given back by the second.
    void keep_type() noexcept;
    void give_type_back() noexcept;
};

// Whether an object lies in it.
inline bool concerns(Span span) noexcept { return !span.empty() && lease::concerns(pointer(span.begin), span.bytes()); }
// The same of elements. MPI may not be asked about a type that may be none, which would be an error: then the answer is
// true unless the type is known.
bool may_concern_when_asked(const void* at, MPI_Count count, MPI_Datatype type, bool may_ask) noexcept;
inline bool may_concern(const void* at, MPI_Count count, MPI_Datatype type, bool may_ask) noexcept {
    const Shape* const known = known_shapes.find(type);
    if (known == nullptr) [[unlikely]]
        return may_concern_when_asked(at, count, type, may_ask);
    return concerns(known->span(address(at), count));
}
// Whether any byte that the type names may lie in an object. Types that name addresses of the host alone may have all
// that is on the device between them.
bool names_an_object(const Elements& elements) noexcept;

// From the program's memory, objects or not, to the same layout in memory of ours, which begins at `shift` + the
// program's address (modulo the address space).
bool load(const Elements& elements, std::uintptr_t shift, const void* caller) noexcept;
// The other way: the first `bytes` of their type maps.
bool store(const Elements& elements, std::uintptr_t shift, MPI_Count bytes, const void* caller) noexcept;

// Whether packing by the device is worth asking for: elements of one object, with gaps, far enough apart.
bool may_be_packed_by_device(const Elements& elements) noexcept;
// The layout of the first `count` elements; nothing where the CPU is to pack them. `layout`: of the type.
std::optional<Layout> packed_by_device(const Elements& elements, const Layout& layout, MPI_Count count) noexcept;
// All of them, packed, and the first `bytes` of packed ones. `layout`: of the type.
bool load_packed(const Elements& elements, const Layout& layout, std::byte* to, const void* caller) noexcept;
bool store_packed(const Elements& elements, const Layout& layout, const std::byte* from, MPI_Count bytes) noexcept;
// The same; false where the CPU is to do it. The packed bytes may lie in an object, too.
bool load_packed_by_device(const Elements& elements, const Layout& layout, std::byte* to) noexcept;
bool store_packed_by_device(const Elements& elements, const Layout& layout, const std::byte* from,
                            MPI_Count bytes) noexcept;

}  // namespace hpe::mpi::HPE_MPI_ABI
