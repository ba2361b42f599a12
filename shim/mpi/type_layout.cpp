// SPDX-License-Identifier: MIT
// A datatype, decoded constructor by constructor.
#include "shim/mpi/type_layout.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "shim/base/mutex.h"
#include "shim/mpi/elements.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

using Found = std::optional<Layout>;

// By which constructor a type was made, and with how many arguments.
struct Envelope {
    int made_by = MPI_UNDEFINED, integers = 0, addresses = 0, types = 0;
    // With a name or without.
    bool predefined() const noexcept {
        return made_by == MPI_COMBINER_NAMED || made_by == MPI_COMBINER_F90_REAL ||
               made_by == MPI_COMBINER_F90_COMPLEX || made_by == MPI_COMBINER_F90_INTEGER;
    }
};

// The older function fails, fatally, for types with large counts.
Envelope envelope_of(MPI_Datatype type) noexcept {
    Envelope e;
    if (functions.MPI_Type_get_envelope_c == nullptr) {
        const int got = functions.MPI_Type_get_envelope(type, &e.integers, &e.addresses, &e.types, &e.made_by);
        return got == MPI_SUCCESS ? e : Envelope();
    }
    MPI_Count counts[4]{};
    const int got = functions.MPI_Type_get_envelope_c(type, &counts[0], &counts[1], &counts[2], &counts[3], &e.made_by);
    if (got != MPI_SUCCESS || counts[2] != 0) return Envelope();
    return {e.made_by, static_cast<int>(counts[0]), static_cast<int>(counts[1]), static_cast<int>(counts[3])};
}

// What a type was made with. The types among it are references of ours.
class Contents {
public:
    explicit Contents(MPI_Datatype type) noexcept : made_(envelope_of(type)) {
        if (predefined() || made_.types == 0) return;
        memory_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(made_.types) * sizeof(MPI_Datatype) +
                                                   static_cast<std::size_t>(made_.addresses) * sizeof(MPI_Aint) +
                                                   static_cast<std::size_t>(made_.integers) * sizeof(int) + 1]);
        if (memory_ == nullptr) return;
        addresses_ = reinterpret_cast<MPI_Aint*>(memory_.get());
        types_ = reinterpret_cast<MPI_Datatype*>(addresses_ + made_.addresses);
        integers_ = reinterpret_cast<int*>(types_ + made_.types);
        known_ = functions.MPI_Type_get_contents(type, made_.integers, made_.addresses, made_.types, integers_,
                                                 addresses_, types_) == MPI_SUCCESS;
    }
    ~Contents() {
        for (int i = 0; known_ && i < made_.types; ++i) {
            if (!is_predefined(types_[i])) functions.MPI_Type_free(&types_[i]);
        }
    }
    Contents(const Contents&) = delete;
    Contents& operator=(const Contents&) = delete;

    bool known() const noexcept { return known_; }
    bool predefined() const noexcept { return made_.predefined(); }
    int made_by() const noexcept { return made_.made_by; }
    int integer(std::size_t i) const noexcept { return integers_[i]; }
    MPI_Aint address(std::size_t i) const noexcept { return addresses_[i]; }
    MPI_Datatype type(std::size_t i) const noexcept { return types_[i]; }

private:
    const Envelope made_;
    bool known_ = false;
    std::unique_ptr<std::byte[]> memory_;
    MPI_Aint* addresses_ = nullptr;
    MPI_Datatype* types_ = nullptr;
    int* integers_ = nullptr;
};

// Deeper ones are nobody's.
constexpr int kMostDepth = 16;

Found decode(MPI_Datatype type, int depth) noexcept;

MPI_Count extent_of(MPI_Datatype type) noexcept {
    MPI_Count lower = 0, extent = 0;
    return functions.MPI_Type_get_extent_x(type, &lower, &extent) == MPI_SUCCESS ? extent : 0;
}

Found repeated(const Found& one, MPI_Count count, MPI_Count stride) noexcept {
    return one && count > 0 ? Layout::repeated(*one, static_cast<std::uint64_t>(count), stride) : std::nullopt;
}

// Of n blocks, the empty ones left out.
template <class Place, class Length, class Inner>
Found blocks_of(std::size_t n, Place&& place, Length&& length, Inner&& inner) noexcept {
    Layout::Join join;
    for (std::size_t i = 0; i < n; ++i) {
        if (length(i) == 0) continue;
        const auto& [layout, extent] = inner(i);
        const auto block = repeated(layout, length(i), extent);
        if (!block || !join.add(*block, place(i))) return std::nullopt;
    }
    return join.finish();
}

Found subarray(const Contents& made, const Found& inner, MPI_Count extent) noexcept {
    const auto dimensions = static_cast<std::size_t>(made.integer(0));
    const bool c_order = made.integer(1 + 3 * dimensions) == MPI_ORDER_C;
    Found all = inner;
    MPI_Count stride = extent;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < dimensions; ++i) {
        const auto d = c_order ? dimensions - 1 - i : i;
        all = repeated(all, made.integer(1 + dimensions + d), stride);
        if (__builtin_mul_overflow(stride, static_cast<MPI_Count>(made.integer(1 + 2 * dimensions + d)), &offset) ||
            !all) {
            return std::nullopt;
        }
        all = all->moved(offset);
        if (__builtin_mul_overflow(stride, static_cast<MPI_Count>(made.integer(1 + d)), &stride)) return std::nullopt;
    }
    return all;
}

#ifndef OPEN_MPI
// Bytes of the predefined elements that it is made of; 0 where these differ. Pairs of a larger and a smaller number are
// such structs, too.
MPI_Count basic_of(MPI_Datatype type, int depth) noexcept {
    const Contents made(type);
    if (!made.known() || depth == kMostDepth) {
        const auto bytes = Shape(type).bytes();
        return bytes <= 16 && std::has_single_bit(static_cast<unsigned long>(bytes)) ? bytes : 0;
    }
    const auto bytes = basic_of(made.type(0), depth + 1);
    const auto n = made.made_by() == MPI_COMBINER_STRUCT ? made.integer(0) : 1;
    for (int i = 1; i < n; ++i) {
        if (basic_of(made.type(static_cast<std::size_t>(i)), depth + 1) != bytes) return 0;
    }
    return bytes;
}
#endif

// MPICH, which the standard's interface may lead to, receives a long message in parts. Where the sender gave it bytes,
// a part may end within an element: it fails for structs of elements of several sizes (seen with 4.0).
bool may_come_as_bytes([[maybe_unused]] MPI_Datatype type) noexcept {
#ifdef OPEN_MPI
    return true;
#else
    return basic_of(type, 0) != 0;
#endif
}

Found of_parts(const Contents& made, int depth) noexcept {
    struct Inner {
        Found layout;
        MPI_Count extent;
    };
    if (made.made_by() == MPI_COMBINER_STRUCT) {
        // Types of a struct repeat.
        MPI_Datatype last = handles.no_type;
        Inner known{};
        return blocks_of(
            static_cast<std::size_t>(made.integer(0)), [&](std::size_t i) { return made.address(i); },
            [&](std::size_t i) { return made.integer(1 + i); },
            [&](std::size_t i) -> const Inner& {
                if (made.type(i) != last) {
                    last = made.type(i);
                    known = {decode(last, depth), extent_of(last)};
                }
                return known;
            });
    }
    const Inner one{decode(made.type(0), depth), extent_of(made.type(0))};
    if (!one.layout) return std::nullopt;
    if (made.made_by() == MPI_COMBINER_DUP || made.made_by() == MPI_COMBINER_RESIZED) return one.layout;
    const auto inner = [&](std::size_t) -> const Inner& { return one; };
    const auto n = static_cast<std::size_t>(made.integer(0));
    const auto own_length = [&](std::size_t i) { return made.integer(1 + i); };
    const auto one_length = [&](std::size_t) { return made.integer(1); };
    switch (made.made_by()) {
        case MPI_COMBINER_CONTIGUOUS: return repeated(one.layout, made.integer(0), one.extent);
        case MPI_COMBINER_VECTOR:
            return repeated(repeated(one.layout, made.integer(1), one.extent), made.integer(0),
                            made.integer(2) * one.extent);
        case MPI_COMBINER_HVECTOR:
            return repeated(repeated(one.layout, made.integer(1), one.extent), made.integer(0), made.address(0));
        case MPI_COMBINER_INDEXED:
            return blocks_of(
                n, [&](std::size_t i) { return made.integer(1 + n + i) * one.extent; }, own_length, inner);
        case MPI_COMBINER_HINDEXED:
            return blocks_of(
                n, [&](std::size_t i) { return made.address(i); }, own_length, inner);
        case MPI_COMBINER_INDEXED_BLOCK:
            return blocks_of(
                n, [&](std::size_t i) { return made.integer(2 + i) * one.extent; }, one_length, inner);
        case MPI_COMBINER_HINDEXED_BLOCK:
            return blocks_of(
                n, [&](std::size_t i) { return made.address(i); }, one_length, inner);
        case MPI_COMBINER_SUBARRAY: return subarray(made, one.layout, one.extent);
        default: return std::nullopt;
    }
}

// Open MPI 4 itself takes other bytes than MPI says for some types, such as a vector of single bytes with stride -1.
// What MPI takes is right for its programs, so the layout must have its bounds.
bool agrees(const Layout& layout, const Shape& shape) noexcept {
    const auto span = shape.span(0, 1);
    return layout.bytes() == static_cast<std::uint64_t>(shape.bytes()) &&
           span.begin == static_cast<std::uintptr_t>(layout.begin()) &&
           span.end == static_cast<std::uintptr_t>(layout.end());
}

Found decode(MPI_Datatype type, int depth) noexcept {
    if (depth == kMostDepth) return std::nullopt;
    const Contents made(type);
    const Shape shape(type);
    Found found;
    if (made.known()) {
        found = of_parts(made, depth + 1);
    } else if (made.predefined()) {
        // A predefined pair of types may have a gap, and does not agree.
        found = Layout::of_bytes(static_cast<std::uint64_t>(shape.bytes()));
    }
    return found && agrees(*found, shape) ? found : std::nullopt;
}

// --- kept with the type ----------------------------------------------------------------------------------------------

// A thread that finds what another one has found meanwhile must not read it while it is replaced.
constinit Mutex mutex;
constinit int key HPE_GUARDED_BY(mutex) = MPI_KEYVAL_INVALID;

int not_for_copies(MPI_Datatype, int, void*, void*, void*, int* flag) {
    *flag = 0;
    return MPI_SUCCESS;
}
int ended(MPI_Datatype, int, void* found, void*) {
    delete static_cast<Found*>(found);
    return MPI_SUCCESS;
}

Found* kept(MPI_Datatype type) noexcept HPE_REQUIRES(mutex) {
    void* found = nullptr;
    int any = 0;
    return key != MPI_KEYVAL_INVALID && functions.MPI_Type_get_attr(type, key, &found, &any) == MPI_SUCCESS && any != 0
               ? static_cast<Found*>(found)
               : nullptr;
}

}  // namespace

bool is_predefined(MPI_Datatype type) noexcept { return envelope_of(type).predefined(); }

std::optional<Layout> decoded(MPI_Datatype type) noexcept { return decode(type, 0); }

std::optional<Layout> layout_of(MPI_Datatype type) noexcept {
    {
        const Locked lock(mutex);
        if (const Found* const found = kept(type)) return *found;
    }
    Found found = decode(type, 0);
    if (found && !may_come_as_bytes(type)) found.reset();
    if (is_predefined(type)) return found;
    const Locked lock(mutex);
    if (key == MPI_KEYVAL_INVALID &&
        functions.MPI_Type_create_keyval(not_for_copies, ended, &key, nullptr) != MPI_SUCCESS) {
        key = MPI_KEYVAL_INVALID;
        return found;
    }
    if (const Found* const others = kept(type)) return *others;
    auto* const keep = new (std::nothrow) Found(found);
    if (keep != nullptr && functions.MPI_Type_set_attr(type, key, keep) != MPI_SUCCESS) delete keep;
    return found;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
