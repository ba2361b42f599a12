// SPDX-License-Identifier: MIT
// Objects whose memory an MPI reads or writes by itself while a message is under way: it gives that memory to other
// processes, which use it at any moment. Only an object that the CPU has never used is lent. If the CPU uses it
// meanwhile, after all, it borrows its blocks (coherence/loans.h), so that no byte is flushed which the CPU did not
// change; and at the end what was received counts as the device's newest.
//
// Source: CUDA-aware MPIs; UCX exports memory when it is first sent or received (cuIpcGetMemHandle), and keeps that.
//
// Bytes. Threads: any, outside the fault path and the gate. Errors: false, and the memory is not to be given away.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hpe {

class Object;

class Lent {
public:
    enum class For : bool { Reading, Writing };
    // The device work before it has ended on return. False: the range lies in no object, or the CPU uses it.
    Lent(std::uintptr_t begin, std::size_t bytes, For use) noexcept;
    Lent(Lent&& other) noexcept;
    ~Lent();
    Lent& operator=(const Lent&) = delete;
    explicit operator bool() const noexcept { return serial_ != 0; }

private:
    const std::uintptr_t begin_;
    const std::size_t bytes_;
    const For use_;
    Object* object_ = nullptr;
    std::uint32_t serial_ = 0;  // of the object; 0: nothing is lent
};

}  // namespace hpe
