// SPDX-License-Identifier: MIT
// The job's memory: made, or found with who made it.
#include "shim/mpi/job.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "shim/base/errno_kept.h"
#include "shim/ipc/memory_file.h"

namespace hpe::mpi::job {

namespace {

constexpr int kMostRanks = 1024;
enum : std::uint32_t { kNobody = 0, kEntered = 1, kTwice = 2 };

struct Memory {
    std::array<std::atomic<std::uint32_t>, kMostRanks> ranks;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

constinit std::atomic<Memory*> memory{nullptr};

// FNV-1a.
void add(std::uint64_t& hash, std::string_view text) noexcept {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
}

// Who holds the other end of a socket of this host; 0: that cannot be told.
pid_t behind(int socket_file, uid_t& user) noexcept {
    ucred other{};
    socklen_t length = sizeof other;
    int domain = 0;
    socklen_t domain_length = sizeof domain;
    if (getsockopt(socket_file, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) != 0 || domain != AF_UNIX ||
        getsockopt(socket_file, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) {
        return 0;
    }
    user = other.uid;
    return other.pid;
}

// What no other job of this host has; false: no launcher that is known has told.
bool identify(std::uint64_t& hash) noexcept {
    const auto variable = [](const char* name) {
        const char* const value = std::getenv(name);
        return std::string_view(value != nullptr ? value : "");
    };
    if (const auto name = variable("PMIX_NAMESPACE"); !name.empty()) {
        add(hash, name);
        add(hash, variable("PMIX_SERVER_TMPDIR"));  // has the launcher's process number, where the name has not
    } else if (const auto file = variable("PMI_FD"); !file.empty()) {
        uid_t user = 0;
        const pid_t launcher = behind(std::atoi(file.data()), user);
        if (launcher <= 0) return false;
        add(hash, {reinterpret_cast<const char*>(&launcher), sizeof launcher});
    } else {
        return false;
    }
    // Process numbers are those of one namespace.
    struct stat processes {};
    if (stat("/proc/self/ns/pid", &processes) != 0) return false;
    add(hash, {reinterpret_cast<const char*>(&processes.st_ino), sizeof processes.st_ino});
    return true;
}

Memory* map(int file) noexcept {
    struct stat status {};
    if (fstat(file, &status) != 0 || status.st_size != sizeof(Memory)) return nullptr;
    void* const at = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return at == MAP_FAILED ? nullptr : static_cast<Memory*>(at);
}

int new_socket() noexcept { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Memory of ours if we are the first, which then stays open, with the socket, as long as the process lives.
Memory* make_or_find(const char* name) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const auto length = std::strlen(name);
    std::memcpy(address.sun_path + 1, name, length);
    const auto* const to = reinterpret_cast<const sockaddr*>(&address);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    // Complete before anybody can find it.
    const int own = memfd_create(name, MFD_CLOEXEC);
    if (own < 0) return nullptr;
    Memory* found = nullptr;
    if (ftruncate(own, sizeof(Memory)) == 0) {
        // Who has the name listens at once, or has gone.
        constexpr int kAttempts = 1000;
        bool again = true;
        for (int attempt = 0; again && attempt < kAttempts; ++attempt) {
            again = false;
            const int one = new_socket();
            if (one < 0) break;
            if (bind(one, to, bytes) == 0) {
                if (listen(one, kMostRanks) == 0 && (found = map(own)) != nullptr) return found;
            } else if (errno == EADDRINUSE) {
                uid_t user = 0;
                if (connect(one, to, bytes) == 0) {
                    const pid_t owner = behind(one, user);
                    const int file = owner > 0 && user == geteuid() ? ipc::memory_file_of(owner, name) : -1;
                    if (file >= 0) {
                        found = map(file);
                        close(file);
                    }
                } else if (errno == ECONNREFUSED) {
                    again = true;
                    sched_yield();
                }
            }
            close(one);
        }
    }
    close(own);
    return found;
}

}  // namespace

bool enter(int rank, int size) noexcept {
    const ErrnoKept kept;
    std::uint64_t hash = 0xcbf29ce484222325u;
    // One MPI of a process.
    if (memory.load(std::memory_order_relaxed) != nullptr) return false;
    if (size < 2 || size > kMostRanks || rank < 0 || rank >= size || !identify(hash)) return false;
    // With the version of what ranks do that know of each other (reductions.cpp).
    char name[96];
    std::snprintf(name, sizeof name, "libhpe-job-1-%u-%d-%016llx", static_cast<unsigned>(geteuid()), size,
                  static_cast<unsigned long long>(hash));
    Memory* const found = make_or_find(name);
    if (found == nullptr) return false;
    auto& own = found->ranks[static_cast<std::size_t>(rank)];
    std::uint32_t nobody = kNobody;
    if (!own.compare_exchange_strong(nobody, kEntered, std::memory_order_acq_rel)) {
        own.store(kTwice, std::memory_order_release);
        return false;
    }
    memory.store(found, std::memory_order_release);
    return true;
}

bool has(int rank) noexcept {
    const Memory* const all = memory.load(std::memory_order_acquire);
    return all != nullptr && rank >= 0 && rank < kMostRanks &&
           all->ranks[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) == kEntered;
}

}  // namespace hpe::mpi::job
