// SPDX-License-Identifier: MIT
// Windows over memory of the program's.
#include "shim/doors/mpi_windows.h"

#include <memory>
#include <new>
#include <utility>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/coherence/lease.h"

namespace hpe::doors::HPE_MPI_ABI {

namespace {

constinit hpe::mpi::ShortList<hpe::mpi::WindowCopy> window_copies;

void add(std::unique_ptr<hpe::mpi::WindowCopy> copy, MPI_Win window) noexcept {
    copy->handle = number(window);
    window_copies.add(copy.release());
}

bool concerns_objects(const void* base, MPI_Aint bytes) noexcept {
    return bytes > 0 && any_objects() && lease::concerns(base, static_cast<std::size_t>(bytes));
}

// Such an MPI asks the driver to whom the memory belongs, and makes CUDA calls on it. It may have given the memory to
// other processes before, for a message.
bool mpi_knows_cuda() noexcept {
    const auto asked = own<decltype(MPIX_Query_cuda_support)>(row_MPIX_Query_cuda_support);
    return asked != nullptr && asked() == 1;
}

bool hand_over(const void* base, MPI_Aint bytes) noexcept {
    return coherence().hand_over({reinterpret_cast<std::uintptr_t>(base), static_cast<std::size_t>(bytes)},
                                 "other processes write it through an MPI window") == CUDA_SUCCESS;
}

template <class Unit, class Real>
int make(Real* real, void* base, MPI_Aint bytes, Unit unit, MPI_Info info, MPI_Comm comm, MPI_Win* window,
         const void* caller) {
    if (!concerns_objects(base, bytes)) return real(base, bytes, unit, info, comm, window);
    const auto refuse = [&](const char* why) {
        log::error("{} for an MPI window of {} bytes over device memory", why, bytes);
        functions.MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
        return MPI_ERR_OTHER;
    };
    if (mpi_knows_cuda()) {
        return hand_over(base, bytes) ? real(base, bytes, unit, info, comm, window)
                                      : refuse("the device has not all bytes");
    }
    std::unique_ptr<hpe::mpi::WindowCopy> copy(new (std::nothrow)
                                                   hpe::mpi::WindowCopy(base, static_cast<std::size_t>(bytes), caller));
    if (copy == nullptr || !copy->ok()) return refuse("no copy in host memory");
    const int result = real(copy->memory(), bytes, unit, info, comm, window);
    if (result == MPI_SUCCESS) add(std::move(copy), *window);
    return result;
}

}  // namespace

hpe::mpi::WindowCopy* copy_of(MPI_Win window) noexcept {
    return window_copies.find([&](const auto& copy) { return copy.handle == number(window); });
}

int make_window(void* base, MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* window) {
    return make(own<decltype(MPI_Win_create)>(row_MPI_Win_create), base, bytes, unit, info, comm, window,
                __builtin_return_address(0));
}
#if MPI_VERSION >= 4
int make_window_c(void* base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, MPI_Win* window) {
    return make(own<decltype(MPI_Win_create_c)>(row_MPI_Win_create_c), base, bytes, unit, info, comm, window,
                __builtin_return_address(0));
}
#endif

// Other ranks name the address of the object in their calls. MPI, the kernel or a network card may look there at any
// time, when the bytes are on the device alone; a copy has another address. Only the calling rank attaches, so that
// none can be told of that address, and one that a program has from MPI_Get_address also stands in its datatypes.
int attach_to_window(MPI_Win window, void* base, MPI_Aint bytes) {
    const bool knows_cuda = mpi_knows_cuda();
    if (!concerns_objects(base, bytes) || (knows_cuda && hand_over(base, bytes))) {
        return own<decltype(MPI_Win_attach)>(row_MPI_Win_attach)(window, base, bytes);
    }
    log::error("device memory cannot be attached to an MPI window{}",
               knows_cuda ? ": the device has not all bytes"
                          : ", as other ranks would use its address: use MPI_Win_create, or host memory");
    functions.MPI_Win_call_errhandler(window, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

int free_window(MPI_Win* window) {
    const auto real = own<decltype(MPI_Win_free)>(row_MPI_Win_free);
    if (window == nullptr) return real(window);
    // Taken before, since the handle is anybody's again at once.
    const MPI_Win freed = *window;
    std::unique_ptr<hpe::mpi::WindowCopy> copy(
        window_copies.take([&](const auto& one) { return one.handle == number(freed); }));
    const int result = real(window);
    if (copy == nullptr) return result;
    if (result != MPI_SUCCESS) {
        add(std::move(copy), freed);
        return result;
    }
    return copy->bring() ? result : cannot();
}

int window_attribute(MPI_Win window, int key, void* value, int* there) {
    static constinit int separate = MPI_WIN_SEPARATE;
    const int result = own<decltype(MPI_Win_get_attr)>(row_MPI_Win_get_attr)(window, key, value, there);
    if (result != MPI_SUCCESS || *there == 0 || (key != MPI_WIN_BASE && key != MPI_WIN_MODEL)) return result;
    const auto* const copy = copy_of(window);
    if (copy == nullptr) return result;
    if (key == MPI_WIN_BASE)
        *static_cast<void**>(value) = copy->base();
    else
        *static_cast<int**>(value) = &separate;
    return result;
}

int test_window(MPI_Win window, int* done) {
    const int result = own<decltype(MPI_Win_test)>(row_MPI_Win_test)(window, done);
    return result != MPI_SUCCESS || *done == 0 || bring(window) ? result : cannot();
}

bool publish(MPI_Win window) noexcept {
    auto* const copy = copy_of(window);
    return copy == nullptr || copy->publish();
}

bool bring(MPI_Win window) noexcept {
    auto* const copy = copy_of(window);
    return copy == nullptr || copy->bring();
}

bool store_held(MPI_Win window, int rank, std::uint64_t last) noexcept {
    if (last == 0) return true;
    const Locked one_after_another(storing_of_windows);
    bool all_stored = pending::store_of_window(window, rank, last);
    while (const auto call = take(of_windows, number(window), rank, last)) {
        all_stored = call->buffers.store() && all_stored;
    }
    return all_stored;
}

}  // namespace hpe::doors::HPE_MPI_ABI
