// SPDX-License-Identifier: MIT
// Files of memory that are handed to other processes (CUDA Driver API, "Virtual Memory Management",
// cuMemExportToShareableHandle, and "Stream Ordered Memory Allocator"): the bytes, and behind them a page that says
// whose they are.
//
// A file is its owner's to close. Threads: any, there is no state. Errors: exceptions of type Error (call.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "toolchain/softgpu/driver/base/abi.h"
#include "toolchain/softgpu/driver/device/addresses.h"

namespace hpe::soft {

struct ShareableLabel {
    enum class Kind : std::uint32_t { Physical = 1, Pool = 2 };
    std::uint64_t tag = 0;  // set and checked by the functions below
    Kind kind = Kind::Physical;
    std::int32_t device = 0;
    std::uint64_t bytes = 0;  // in front of the label
};

// One of CUDA's types, supported or not.
bool is_shareable_type(CUmemAllocationHandleType type);

// Puts the label behind the bytes. Throws OUT_OF_MEMORY.
void label_file(int file, ShareableLabel label);
// Throws UNKNOWN for what is no file descriptor, INVALID_VALUE for a file without a label, NOT_SUPPORTED for one of
// another kind.
ShareableLabel label_of(int file, ShareableLabel::Kind kind);

// A part of a file in this process.
class FileView final : public Backing {
public:
    // The offset may be any. Throws OUT_OF_MEMORY.
    FileView(int file, std::uint64_t offset, std::uint64_t bytes);
    ~FileView() override;
    std::byte* bytes() const { return bytes_; }

private:
    std::byte* bytes_ = nullptr;
    void* base_ = nullptr;
    std::uint64_t mapped_ = 0;
};

// A file descriptor that is closed with its owner. Throws OUT_OF_MEMORY for a negative number.
class OwnedFile {
public:
    explicit OwnedFile(int file);
    ~OwnedFile();
    OwnedFile(const OwnedFile&) = delete;
    OwnedFile& operator=(const OwnedFile&) = delete;
    int number() const { return file_; }
    int duplicate() const;  // for the application; throws OPERATING_SYSTEM

private:
    const int file_;
};

}  // namespace hpe::soft
