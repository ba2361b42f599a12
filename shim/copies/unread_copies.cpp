// SPDX-License-Identifier: MIT
// The choice of copies, and what is asked once.
#include "shim/copies/unread_copies.h"

#include <dirent.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <new>
#include <string>
#include <string_view>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel_file.h"
#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/base/waiting.h"
#include "shim/driver/driver.h"
#include "shim/observe/unread.h"

namespace hpe::unread_copies {

namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t kPage = 4096;
constexpr std::size_t kSmallest = std::size_t{64} << 10;

constinit std::atomic<bool> on{false};

// From copied() to the end of its event.
thread_local constinit unread::Brought brought __attribute__((tls_model("initial-exec"))) = {};

// The value of a line of /proc/*/status, without blanks; empty: it is not there.
std::string_view value_of(std::string_view status, std::string_view key) noexcept {
    const auto at = status.find(key);
    if (at == status.npos) return {};
    const auto begin = status.find_first_not_of(" \t", at + key.size());
    return begin == status.npos ? std::string_view{} : status.substr(begin, status.find('\n', begin) - begin);
}

// The driver's own threads block what they like, and have no business with the program's memory. While glibc makes a
// thread all signals are blocked, its own (nptl(7)), too, which programs cannot block: the mask that comes is waited
// for, up to a second, which a busy machine may need. Whoever blocks all for good is not waited for again.
bool blocks_sigsegv(const char* thread) {
    const auto path = "/proc/self/task/" + std::string(thread) + "/status";
    constexpr int kCancel = 32, kSetId = 33;
    static constinit std::atomic<int> naps{20000};
    for (int left = naps.load(std::memory_order_relaxed);; --left) {
        std::array<char, 4096> text;
        const auto got = kernel::File(path.c_str()).read(text.data(), text.size());
        const std::string_view status(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
        if (value_of(status, "Name:").starts_with("cuda")) return false;
        const auto mask = value_of(status, "\nSigBlk:");
        unsigned long long bits = 0;
        std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
        const auto has = [&](int signal) { return (bits >> (signal - 1) & 1) != 0; };
        if (!has(kCancel) || !has(kSetId)) return has(SIGSEGV);
        if (left == 0) {
            naps.store(0, std::memory_order_relaxed);
            return has(SIGSEGV);
        }
        nap(50us);
    }
}

// Masks that are set from the first allocation on leave SIGSEGV to the kernel, and threads hand their masks on: so none
// comes later where there is none now.
bool any_blocks_sigsegv() {
    DIR* const threads = opendir("/proc/self/task");
    if (threads == nullptr) return true;
    bool any = false;
    while (const dirent* const entry = readdir(threads)) {
        if (entry->d_name[0] != '.' && blocks_sigsegv(entry->d_name)) any = true;
    }
    closedir(threads);
    return any;
}

bool any_device_reads_pageable_memory() noexcept {
    const Inside inside;
    for (int device = 0;; ++device) {
        int reads = 0;
        const auto asked = driver.cuDeviceGetAttribute(&reads, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device);
        if (asked != CUDA_SUCCESS) return device == 0;  // the last but one was the last
        if (reads != 0) return true;
    }
}

// Asked until the answer is yes, as threads with other masks may end.
bool harmless() {
    static constinit std::atomic<bool> known{false}, said{false};
    const bool has_mpi = unread::given_up();
    if (known.load(std::memory_order_relaxed) && !has_mpi) return true;
    const char* why = nullptr;
    if (has_mpi) {
        why = "other ranks of an MPI read this process's memory";
    } else if (any_device_reads_pageable_memory()) {
        why = "a device accesses pageable memory by itself";
    } else if (!malloc_chunk::readable()) {
        why = "process_vm_readv is forbidden";
    }
    if (why != nullptr) {
        on.store(false, std::memory_order_relaxed);
    } else if (any_blocks_sigsegv()) {
        why = "a thread has SIGSEGV blocked";
    } else {
        known.store(true, std::memory_order_relaxed);
        return true;
    }
    if (!said.exchange(true)) log::info("HPE_UNREAD: copies are not watched: {}", why);
    return false;
}

}  // namespace

void configure(bool wanted) noexcept { on.store(wanted, std::memory_order_relaxed); }

void copied(call_stacks::Event& event, const void* to, std::size_t bytes, std::uint64_t ticks) noexcept try {
    if (!on.load(std::memory_order_relaxed) || bytes < kSmallest) return;
    const ErrnoKept kept;
    const auto begin = reinterpret_cast<std::uintptr_t>(to);
    const auto first = (begin + kPage - 1) / kPage * kPage;
    const auto end = (begin + bytes) / kPage * kPage;
    if (end <= first || !harmless()) return;
    const auto chunk = malloc_chunk::find(begin, bytes, unread::known_chunk(begin, bytes));
    if (!chunk) return;
    const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    if (malloc_chunk::holds(*chunk, stack, 1)) return;
    const auto pages = end - first;
    const auto share = static_cast<double>(pages) / static_cast<double>(bytes);
    brought = {first, pages, *chunk, static_cast<std::uint64_t>(static_cast<double>(ticks) * share)};
    event.then([](backtrace::Ticket ticket) { unread::close(brought, ticket); });
} catch (const std::bad_alloc&) {
}

}  // namespace hpe::unread_copies
