// SPDX-License-Identifier: MIT
// Elements without gaps are copied as they lie, others by way of MPI's own packing: it runs on the CPU, and its
// accesses to objects trap as the program's do; or packed on the device.
#include "shim/mpi/elements.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <optional>

#include "shim/base/address.h"
#include "shim/base/log.h"
#include "shim/coherence/lease.h"
#include "shim/copies/own_work.h"
#include "shim/copies/packing.h"
#include "shim/mpi/held.h"
#include "shim/mpi/host_memory.h"
#include "shim/mpi/type_layout.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

// A type and a place for MPI_Pack and MPI_Unpack. Some MPIs take no null pointer there, though a type may name
// addresses (MPI_BOTTOM).
class Placed {
public:
    Placed(std::uintptr_t at, MPI_Datatype type) noexcept : at_(at), type_(type) {
        constexpr MPI_Aint kAside = 4096;
        const int one = 1;
        const MPI_Aint back = -kAside;
        if (at != 0 || functions.MPI_Type_create_hindexed(1, &one, &back, type, &type_) != MPI_SUCCESS) return;
        functions.MPI_Type_commit(&type_);
        at_ = kAside;
        own_ = true;
    }
    ~Placed() {
        if (own_) functions.MPI_Type_free(&type_);
    }
    Placed(const Placed&) = delete;
    Placed& operator=(const Placed&) = delete;
    void* at() const noexcept { return pointer(at_); }
    MPI_Datatype type() const noexcept { return type_; }

private:
    std::uintptr_t at_;
    MPI_Datatype type_;
    bool own_ = false;
};

// Packs `count` elements, MPI's integers allowing. Returns their bytes, 0 where it failed.
int pack(std::uintptr_t from, MPI_Count count, MPI_Datatype type, void* to, MPI_Count room) noexcept {
    int position = 0;
    const Placed placed(from, type);
    const int result = functions.MPI_Pack(placed.at(), static_cast<int>(count), placed.type(), to,
                                          static_cast<int>(room), &position, handles.self);
    return result == MPI_SUCCESS ? position : 0;
}
bool unpack(const void* from, int bytes, std::uintptr_t to, MPI_Count count, MPI_Datatype type) noexcept {
    int position = 0;
    const Placed placed(to, type);
    return functions.MPI_Unpack(from, bytes, &position, placed.at(), static_cast<int>(count), placed.type(),
                                handles.self) == MPI_SUCCESS;
}

bool copy_packed(std::uintptr_t from, std::uintptr_t to, MPI_Count count, const Elements& elements) noexcept {
    constexpr MPI_Count kAtOnce = MPI_Count{1} << 20;
    const auto bytes = elements.shape.bytes();
    if (bytes > INT_MAX) {
        log::error("an MPI datatype with gaps and more than 2 GiB of data cannot be used with device memory");
        return false;
    }
    const auto most = std::max<MPI_Count>(1, kAtOnce / bytes);
    const HostMemory packed(nullptr, static_cast<std::size_t>(std::min(most, count) * bytes));
    if (packed.at() == nullptr) return false;
    for (MPI_Count done = 0; done < count; done += most) {
        const auto n = std::min(most, count - done);
        const auto offset = static_cast<std::uintptr_t>(done * elements.shape.extent());
        const int got = pack(from + offset, n, elements.type, packed.at(), n * bytes);
        if (got != n * bytes || !unpack(packed.at(), got, to + offset, n, elements.type)) return false;
    }
    return true;
}

// The rest of the element keeps what the program has there. `came`: the beginning of it, packed.
bool store_part(const Elements& elements, MPI_Count index, const std::byte* came, MPI_Count bytes) noexcept {
    const auto whole = elements.shape.bytes();
    if (whole > INT_MAX) return false;
    const HostMemory there(nullptr, static_cast<std::size_t>(whole));
    const auto at = elements.at + static_cast<std::uintptr_t>(index * elements.shape.extent());
    if (there.at() == nullptr || pack(at, 1, elements.type, there.at(), whole) != whole) return false;
    std::memcpy(there.at(), came, static_cast<std::size_t>(bytes));
    return unpack(there.at(), static_cast<int>(whole), at, 1, elements.type);
}
// `shift`: from where it came in its places.
bool store_part(const Elements& elements, MPI_Count index, std::uintptr_t shift, MPI_Count bytes) noexcept {
    const auto whole = elements.shape.bytes();
    if (whole > INT_MAX) return false;
    const HostMemory came(nullptr, static_cast<std::size_t>(whole));
    const auto at = elements.at + shift + static_cast<std::uintptr_t>(index * elements.shape.extent());
    return came.at() != nullptr && pack(at, 1, elements.type, came.at(), whole) == whole &&
           store_part(elements, index, came.at(), bytes);
}

// Whether accesses of the CPU would go instruction by instruction: elements with gaps in memory without a host copy.
bool goes_by_copy(const Elements& elements) noexcept {
    const auto span = elements.span();
    return !span.empty() && !elements.shape.dense(elements.count) &&
           lease::all_uncached(pointer(span.begin), span.bytes());
}
// What of such memory is stored by store(the elements in a copy, how far the copy lies from them).
template <class Store>
bool store_by_copy(const Elements& elements, const void* caller, Store&& store) noexcept {
    const auto span = elements.span();
    const HostMemory now(pointer(span.begin), span.bytes()), before(pointer(span.begin), span.bytes());
    if (now.at() == nullptr || before.at() == nullptr ||
        lease::load(before.at(), pointer(span.begin), span.bytes(), caller) != span.bytes()) {
        return false;
    }
    std::memcpy(now.at(), before.at(), span.bytes());
    const auto distance = address(now.at()) - span.begin;
    Elements copy = elements;
    copy.at += distance;
    return store(copy, distance) && lease::store_changes(pointer(span.begin), now.at(), before.at(), span.bytes());
}

}  // namespace

constinit KnownShapes known_shapes;

Shape::Shape(MPI_Datatype type) noexcept {
    if (const Shape* const number = known_shapes.find(type)) {
        *this = *number;
        return;
    }
    *this = asked(type);
    // A larger type is no number or pair of numbers, and is spared the question whether it is one of MPI's own.
    constexpr MPI_Count kLargest = 32;
    if (bytes_ > 0 && bytes_ <= kLargest && is_predefined(type)) known_shapes.add(type, *this);
}

Shape Shape::asked(MPI_Datatype type) noexcept {
    Shape shape;
    MPI_Count lower = 0;
    if (type == handles.no_type || functions.MPI_Type_size_x(type, &shape.bytes_) != MPI_SUCCESS || shape.bytes_ <= 0 ||
        functions.MPI_Type_get_extent_x(type, &lower, &shape.extent_) != MPI_SUCCESS ||
        functions.MPI_Type_get_true_extent_x(type, &shape.true_begin_, &shape.true_extent_) != MPI_SUCCESS) {
        shape.bytes_ = 0;
    }
    return shape;
}

void Elements::keep_type() noexcept {
    if (keeps_type || is_predefined(type)) return;
    const int one = 1;
    const MPI_Aint here = 0;
    MPI_Datatype kept{};
    if (functions.MPI_Type_create_hindexed(1, &one, &here, type, &kept) != MPI_SUCCESS) return;
    functions.MPI_Type_commit(&kept);
    type = kept;
    keeps_type = true;
}

void Elements::give_type_back() noexcept {
    if (keeps_type) functions.MPI_Type_free(&type);
    keeps_type = false;
}

bool may_concern_when_asked(const void* at, MPI_Count count, MPI_Datatype type, bool may_ask) noexcept {
    return !may_ask || concerns(Shape(type).span(address(at), count));
}

bool names_an_object(const Elements& elements) noexcept {
    const auto span = elements.span();
    if (!concerns(span)) return false;
    if (elements.shape.dense(elements.count) || lease::in_one_object(pointer(span.begin), span.bytes())) return true;
    const auto one = decoded(elements.type);
    const auto all = one ? Layout::repeated(*one, static_cast<std::uint64_t>(elements.count), elements.shape.extent())
                         : std::nullopt;
    return !all || all->any_piece([&](std::int64_t begin, std::int64_t end) {
        return lease::concerns(pointer(elements.at + static_cast<std::uintptr_t>(begin)),
                               static_cast<std::size_t>(end - begin));
    });
}

bool load(const Elements& elements, std::uintptr_t shift, const void* caller) noexcept {
    const auto span = elements.span();
    if (span.empty()) return true;
    if (!elements.shape.dense(elements.count)) {
        if (!lease::in_one_object(pointer(span.begin), span.bytes()) && !goes_by_copy(elements)) {
            return copy_packed(elements.at, elements.at + shift, elements.count, elements);
        }
        // The view, or a copy, does not trap; its gaps are brought, too.
        const lease::ToRead ready(pointer(span.begin), span.bytes(), caller);
        const auto to_view = reinterpret_cast<std::uintptr_t>(ready.memory()) - span.begin;
        return ready.memory() != nullptr && ready.bytes() == span.bytes() &&
               copy_packed(elements.at + to_view, elements.at + shift, elements.count, elements);
    }
    auto* const to = static_cast<std::byte*>(pointer(span.begin + shift));
    return load_by_device(to, pointer(span.begin), span.bytes(), caller) == span.bytes();
}

bool store(const Elements& elements, std::uintptr_t shift, MPI_Count bytes, const void* caller) noexcept {
    const auto one = elements.shape.bytes();
    if (one <= 0) return true;
    if (goes_by_copy(elements)) {
        return store_by_copy(elements, caller, [&](const Elements& copy, std::uintptr_t distance) {
            return store(copy, shift - distance, bytes, caller);
        });
    }
    Elements whole = elements;
    whole.count = std::min(bytes / one, elements.count);
    const auto span = whole.span();
    if (!span.empty()) {
        if (whole.shape.dense(whole.count)) {
            const auto* const from = static_cast<const std::byte*>(pointer(span.begin + shift));
            if (store_by_device(pointer(span.begin), from, span.bytes(), caller) != span.bytes()) return false;
        } else if (!copy_packed(elements.at + shift, elements.at, whole.count, elements)) {
            return false;
        }
    }
    const auto rest = whole.count < elements.count ? bytes - whole.count * one : 0;
    return rest <= 0 || store_part(elements, whole.count, shift, rest);
}

bool may_be_packed_by_device(const Elements& elements) noexcept {
    const auto span = elements.span();
    return span.bytes() >= packing::kSmallestSpan && elements.count * elements.shape.bytes() <= INT_MAX &&
           !elements.shape.dense(elements.count) && lease::in_one_object(pointer(span.begin), span.bytes());
}

std::optional<Layout> packed_by_device(const Elements& elements, const Layout& layout, MPI_Count count) noexcept {
    auto all = Layout::repeated(layout, static_cast<std::uint64_t>(count), elements.shape.extent());
    if (all && !packing::worth_it(*all, elements.at)) all.reset();
    return all;
}

bool load_packed_by_device(const Elements& elements, const Layout& layout, std::byte* to) noexcept {
    const auto all = packed_by_device(elements, layout, elements.count);
    return all && packing::pack(*all, elements.at, to, static_cast<std::size_t>(all->bytes()));
}

bool load_packed(const Elements& elements, const Layout& layout, std::byte* to, const void* caller) noexcept {
    if (load_packed_by_device(elements, layout, to)) return true;
    // The view does not trap where the device cannot give the bytes.
    const auto span = elements.span();
    const lease::ToRead ready(pointer(span.begin), span.bytes(), caller);
    if (ready.memory() == nullptr) return false;
    const auto to_view = reinterpret_cast<std::uintptr_t>(ready.memory()) - span.begin;
    const auto bytes = elements.count * elements.shape.bytes();
    return pack(elements.at + to_view, elements.count, elements.type, to, bytes) == bytes;
}

bool store_packed_by_device(const Elements& elements, const Layout& layout, const std::byte* from,
                            MPI_Count bytes) noexcept {
    const auto one = elements.shape.bytes();
    const auto came = packed_by_device(elements, layout, (bytes + one - 1) / one);
    return came && packing::unpack(*came, elements.at, from, static_cast<std::size_t>(bytes));
}

bool store_packed(const Elements& elements, const Layout& layout, const std::byte* from, MPI_Count bytes) noexcept {
    const auto one = elements.shape.bytes();
    bytes = std::min(bytes, elements.count * one);
    if (bytes <= 0 || store_packed_by_device(elements, layout, from, bytes)) return true;
    if (goes_by_copy(elements)) {
        return store_by_copy(elements, nullptr, [&](const Elements& copy, std::uintptr_t) {
            return store_packed(copy, layout, from, bytes);
        });
    }
    const auto whole = bytes / one, rest = bytes % one;
    if (whole != 0 && !unpack(from, static_cast<int>(whole * one), elements.at, whole, elements.type)) return false;
    return rest == 0 || store_part(elements, whole, from + whole * one, rest);
}

}  // namespace hpe::mpi::HPE_MPI_ABI
