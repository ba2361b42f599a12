// SPDX-License-Identifier: MIT
// Labels and views of shareable files.
#include "toolchain/softgpu/driver/memory/shareable.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {
namespace {

constexpr std::uint64_t tag = 0x6572616873657068;

}  // namespace

bool is_shareable_type(CUmemAllocationHandleType type) {
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || type == CU_MEM_HANDLE_TYPE_WIN32 ||
           type == CU_MEM_HANDLE_TYPE_WIN32_KMT || type == CU_MEM_HANDLE_TYPE_FABRIC;
}

void label_file(int file, ShareableLabel label) {
    label.tag = tag;
    const auto at = static_cast<off_t>(label.bytes);
    require(ftruncate(file, at + static_cast<off_t>(host_page)) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    require(pwrite(file, &label, sizeof label, at) == static_cast<ssize_t>(sizeof label), CUDA_ERROR_OUT_OF_MEMORY);
}

ShareableLabel label_of(int file, ShareableLabel::Kind kind) {
    struct stat status {};
    require(file >= 0, CUDA_ERROR_UNKNOWN);
    require(fstat(file, &status) == 0 && S_ISREG(status.st_mode));
    const auto size = static_cast<std::uint64_t>(status.st_size);
    require(size > host_page && size % host_page == 0);
    ShareableLabel label;
    const auto at = static_cast<off_t>(size - host_page);
    require(pread(file, &label, sizeof label, at) == static_cast<ssize_t>(sizeof label));
    require(label.tag == tag && label.bytes == size - host_page);
    require(label.kind == kind, CUDA_ERROR_NOT_SUPPORTED);
    return label;
}

FileView::FileView(int file, std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t begin = offset / host_page * host_page;
    mapped_ = (offset - begin + bytes + host_page - 1) / host_page * host_page;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, static_cast<off_t>(begin));
    require(base_ != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    madvise(base_, mapped_, MADV_DONTFORK);
    bytes_ = static_cast<std::byte*>(base_) + (offset - begin);
}
FileView::~FileView() { munmap(base_, mapped_); }

OwnedFile::OwnedFile(int file) : file_(file) { require(file >= 0, CUDA_ERROR_OUT_OF_MEMORY); }
OwnedFile::~OwnedFile() { close(file_); }
int OwnedFile::duplicate() const {
    const int copy = fcntl(file_, F_DUPFD_CLOEXEC, 0);
    require(copy >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    return copy;
}

}  // namespace hpe::soft
