// SPDX-License-Identifier: MIT
// Packing and unpacking on the device: the bytes of an object that a layout names, one after the other. A kernel
// gathers them into memory of ours on the device, from where one copy brings them; so only what a message is made of
// crosses the link, and no block changes its side.
//
// Source: thesis section 5.3; Pearson et al., "TEMPI" (HPDC 2021), section 4.
//
// Bytes. Objects and host memory are the caller's; the kernel and its memory belong to a context and die with it.
// Threads: any, outside the fault path and the gate. Errors: false, and the caller's CPU does all of it: the device has
// no memory, no compiler for the kernel, or is not to be used now. What was unpacked before is unpacked once more then.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "shim/copies/layout.h"
#include "shim/copies/own_work.h"

namespace hpe::packing {

// A kernel, a copy and two waits cost some tens of microseconds, as do the fetches of so many bytes.
constexpr std::size_t kSmallestSpan = std::size_t{256} << 10;

// Whether the layout is one for the device if it is put at `at`: it has gaps, its bytes are far apart, and most of what
// lies there is not valid on the host.
bool worth_it(const Layout& layout, std::uintptr_t at) noexcept;

// What the layout spans at `at`; nothing where that does not lie in one object of the context.
std::optional<DeviceRange> span_of(const Layout& layout, std::uintptr_t at, const void* context) noexcept;

// The first `bytes` packed bytes. `packed` lies in ordinary memory or, where the bytes stay on the device, in an
// object.
bool pack(const Layout& layout, std::uintptr_t at, std::byte* packed, std::size_t bytes) noexcept;
bool unpack(const Layout& layout, std::uintptr_t at, const std::byte* packed, std::size_t bytes) noexcept;

// Launches for one message, by those who make the work themselves. To be kept until the device is done.
enum class Direction : unsigned { Pack = 0, Unpack = 1 };
class Launch {
public:
    // Bytes [begin, end) of the packed ones, the first of which lie at `packed`, where the device reaches them.
    CUresult operator()(CUdeviceptr packed, std::size_t begin, std::size_t end) noexcept;

private:
    friend std::optional<Launch> prepare(Direction, const Layout&, std::uintptr_t, std::uint64_t, OwnWork&,
                                         CUcontext) noexcept;
    Launch(const Layout& layout, std::uintptr_t at, unsigned unit) noexcept;

    CUfunction kernel_ = nullptr;
    CUstream stream_ = nullptr;
    CUdeviceptr memory_, pieces_ = 0;
    unsigned count_ = 0, width_, direction_ = 0, turn_;
    std::array<unsigned, Layout::kMostLoops> counts_;
    std::array<std::int64_t, Layout::kMostLoops> strides_;
    std::shared_ptr<const void> list_;  // where the pieces are
};
// In the work's stream. `aligned_as`: all packed addresses and numbers of bytes that the launches will get, or-ed,
// since the kernel moves units that divide them. Nothing: the device cannot, at least not now.
std::optional<Launch> prepare(Direction direction, const Layout& layout, std::uintptr_t at, std::uint64_t aligned_as,
                              OwnWork& work, CUcontext context) noexcept;

void forget(CUcontext context) noexcept;

}  // namespace hpe::packing
