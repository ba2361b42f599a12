// SPDX-License-Identifier: MIT
// The unified address space (CUDA Driver API, "Unified Addressing"): which addresses belong to which allocation, and
// where its bytes are in this process.
//
// A device address is reserved PROT_NONE in the process, so that the host traps on it; the bytes are reached through
// the device's hidden view. The application (or libhpe) may map what it likes over the reservation.
//
// Addresses and sizes in bytes. Records are shared and never change once they are in the table. Threads: any. Errors:
// 0, false or nullptr.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

namespace hpe::soft {

class Context;
class Device;
class Stream;
struct Allocation;
struct MemoryPool;

enum class Kind { Device, Pinned, Registered, Managed, Pool, Virtual, Graph };

// What is behind an allocation of which the rooms above know more. Lives as long as the last record of the allocation.
class Backing {
public:
    Backing() = default;
    virtual ~Backing() = default;
    Backing(const Backing&) = delete;
    Backing& operator=(const Backing&) = delete;
    // Is there memory at the addresses for now?
    virtual bool present() const { return true; }
    // The allocation has left the table, other than through the functions below.
    virtual void end(const Allocation&) {}
    // The application frees it in the order of a stream, or at once. With the order lock held. Throw INVALID_VALUE.
    virtual void free_in_stream(const Allocation& allocation, Stream& stream);
    virtual void free_now(const Allocation& allocation);
};

struct Allocation {
    std::uint64_t address = 0, size = 0;
    Kind kind = Kind::Device;
    std::byte* bytes = nullptr;  // where the host reaches the byte at `address`; Graph: null while not allocated
    Context* context = nullptr;
    Device* device = nullptr;      // where the bytes are; for host memory, the device of the context that asked for it
    unsigned flags = 0;            // as given to cuMemHostAlloc, cuMemHostRegister, cuMemAllocManaged
    std::uint64_t id = 0;          // never reused
    bool imported = false;         // opened from another process, of which `backing` is the mapping
    bool module_variable = false;  // belongs to a module or a CUDA array: cuMemFree refuses it
    std::uint64_t reserved = 0;    // bytes of the reservation that this allocation owns; 0: it is part of a shared one
    std::uint64_t offset = 0;      // in the device's memory
    std::uint64_t reservation = 0, reservation_size = 0;  // what CU_POINTER_ATTRIBUTE_RANGE_* and mempool queries say
    bool read_only = false;                               // HostRegister with READ_ONLY
    std::set<int> access, access_read;  // Virtual, Graph: devices that may read and write, devices that may read
    bool sync_memops = false;
    bool shareable = false;  // Pool, Virtual: may be given to other processes as a file
    std::shared_ptr<MemoryPool> pool;
    std::shared_ptr<Backing> backing;                                            // Virtual, Graph, imported
    int managed_location = -2, managed_read_mostly = 0, prefetch_location = -2;  // what was advised; -2: never
    std::set<int> accessed_by;

    std::uint64_t end() const { return address + size; }
    bool on_device() const {
        return kind == Kind::Device || kind == Kind::Pool || kind == Kind::Virtual || kind == Kind::Graph;
    }
};
using AllocationRef = std::shared_ptr<const Allocation>;

class Addresses {
public:
    // A PROT_NONE range of the process, aligned to `align`; at `hint` if that is possible. 0: none left.
    std::uint64_t reserve(std::uint64_t bytes, std::uint64_t align, std::uint64_t hint = 0);
    void unreserve(std::uint64_t address, std::uint64_t bytes);
    bool in_reservation(std::uint64_t address) const;

    // False: overlaps what is there.
    bool add(std::shared_ptr<Allocation> allocation);
    std::shared_ptr<Allocation> remove(std::uint64_t address);  // by exact start
    AllocationRef find(std::uint64_t address) const;            // the allocation that holds this byte
    AllocationRef next(std::uint64_t address) const;            // the first one at or after
    // Changes an allocation's record by replacing it, so that readers never see half of a change.
    template <class Change>
    bool change(std::uint64_t address, Change change_it) {
        const std::unique_lock lock(mutex_);
        auto at = by_address_.upper_bound(address);
        if (at == by_address_.begin() || (--at)->second->end() <= address) return false;
        auto copy = std::make_shared<Allocation>(*at->second);
        change_it(*copy);
        at->second = std::move(copy);
        return true;
    }
    template <class Predicate>
    std::vector<std::shared_ptr<Allocation>> select(Predicate wanted) const {
        const std::shared_lock lock(mutex_);
        std::vector<std::shared_ptr<Allocation>> found;
        for (const auto& [address, allocation] : by_address_)
            if (wanted(*allocation)) found.push_back(allocation);
        return found;
    }
    std::uint64_t new_id() { return ++last_id_; }

private:
    mutable std::shared_mutex mutex_;
    std::map<std::uint64_t, std::shared_ptr<Allocation>> by_address_;
    mutable std::mutex reserve_mutex_;
    std::map<std::uint64_t, std::uint64_t> reservations_;         // address -> bytes
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holes_;  // freed reservations, the last one at the end
    std::uint64_t cursor_ = 0x7e9000000000;                       // where the next new reservation is tried
    std::atomic<std::uint64_t> last_id_{0};
};

}  // namespace hpe::soft
