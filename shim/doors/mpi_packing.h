// SPDX-License-Identifier: MIT
// Doors of MPI_Pack and MPI_Unpack: elements with gaps that lie on the device are packed and unpacked there. All else
// is done by MPI on the calling CPU, whose accesses trap.
//
// Memory is the program's. Threads: any that may call MPI. Errors: MPI's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/doors/mpi_door.h"
#include "shim/doors/touch.h"
#include "shim/mpi/elements.h"
#include "shim/mpi/type_layout.h"

namespace hpe::doors::HPE_MPI_ABI {

// The elements of a call that the device may work with, and where their packed bytes lie.
template <class Count>
struct PackedElements {
    Elements elements;
    std::optional<Layout> layout{};
    std::byte* packed = nullptr;
    MPI_Count bytes = 0;

    PackedElements(const void* at, Count count, MPI_Datatype type, const void* memory, Count room,
                   const Count* position) noexcept {
        if (!any_objects() || count <= 0 || memory == nullptr || position == nullptr || *position < 0) return;
        elements = {reinterpret_cast<std::uintptr_t>(at), count, type, Shape(type)};
        bytes = count * elements.shape.bytes();
        if (bytes <= 0 || bytes > room - *position || !may_be_packed_by_device(elements)) return;
        packed = static_cast<std::byte*>(const_cast<void*>(memory)) + *position;
        layout = layout_of(type);
    }
    // Helper threads may be the next to access it.
    bool in_ordinary_memory() const noexcept { return !lease::concerns(packed, static_cast<std::size_t>(bytes)); }
};

template <std::size_t row, class Function>
struct Packs;
template <std::size_t row, class Count>
struct Packs<row, int(const void*, Count, MPI_Datatype, void*, Count, Count*, MPI_Comm)> {
    static int door(const void* from, Count count, MPI_Datatype type, void* memory, Count room, Count* position,
                    MPI_Comm comm) {
        const auto real = own<int(const void*, Count, MPI_Datatype, void*, Count, Count*, MPI_Comm)>(row);
        const PackedElements<Count> all(from, count, type, memory, room, position);
        // Of nothing MPI checks the arguments.
        if (!all.layout || real(from, 0, type, memory, room, position, comm) != MPI_SUCCESS) {
            return real(from, count, type, memory, room, position, comm);
        }
        if (all.in_ordinary_memory()) touch_to_write(all.packed, static_cast<std::size_t>(all.bytes));
        if (!load_packed_by_device(all.elements, *all.layout, all.packed)) {
            return real(from, count, type, memory, room, position, comm);
        }
        *position += static_cast<Count>(all.bytes);
        return MPI_SUCCESS;
    }
};

template <std::size_t row, class Function>
struct Unpacks;
template <std::size_t row, class Count>
struct Unpacks<row, int(const void*, Count, Count*, void*, Count, MPI_Datatype, MPI_Comm)> {
    static int door(const void* memory, Count room, Count* position, void* to, Count count, MPI_Datatype type,
                    MPI_Comm comm) {
        const auto real = own<int(const void*, Count, Count*, void*, Count, MPI_Datatype, MPI_Comm)>(row);
        const PackedElements<Count> all(to, count, type, memory, room, position);
        if (!all.layout || real(memory, room, position, to, 0, type, comm) != MPI_SUCCESS) {
            return real(memory, room, position, to, count, type, comm);
        }
        if (all.in_ordinary_memory()) touch_to_read(all.packed, static_cast<std::size_t>(all.bytes));
        if (!store_packed_by_device(all.elements, *all.layout, all.packed, all.bytes)) {
            return real(memory, room, position, to, count, type, comm);
        }
        *position += static_cast<Count>(all.bytes);
        return MPI_SUCCESS;
    }
};

}  // namespace hpe::doors::HPE_MPI_ABI
