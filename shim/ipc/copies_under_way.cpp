// SPDX-License-Identifier: MIT
// Counters in shared memory, and who may write them.
#include "shim/ipc/copies_under_way.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "shim/base/added.h"
#include "shim/base/errno_kept.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/driver/driver.h"
#include "shim/memory/pinned.h"

namespace hpe::ipc {

namespace {

// The counters wrap around.
bool is_behind(std::uint32_t ended, std::uint32_t begun) noexcept {
    return static_cast<std::int32_t>(begun - ended) > 0;
}

bool is_gone(std::int64_t process) noexcept {
    const ErrnoKept kept;
    return kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

void end_all(ReadingDevice& reader) noexcept {
    reader.ended.store(reader.begun.load(std::memory_order_acquire), std::memory_order_release);
}

// Without limit: its device may have to end a kernel first, and would else read what comes next. The reader itself sees
// that its device has failed.
void wait_for(ReadingDevice& reader) noexcept {
    constexpr int kRoundsOfALook = 1 << 16;
    const auto begun = reader.begun.load(std::memory_order_acquire);
    for (int round = 1; is_behind(reader.ended.load(std::memory_order_acquire), begun); ++round) {
        if (round % kRoundsOfALook != 0) continue;
        if (is_gone(reader.process.load(std::memory_order_relaxed))) return end_all(reader);
        sched_yield();
        round = 0;
    }
}

}  // namespace

void wait_for_readers(ExportTable& table) noexcept {
    for (auto& reader : table.readers) {
        // Places are taken from the first on, and never given back.
        if (reader.process.load(std::memory_order_acquire) == 0) break;
        if (is_behind(reader.ended.load(std::memory_order_acquire), reader.begun.load(std::memory_order_acquire))) {
            wait_for(reader);
        }
    }
}

bool CopiesUnderWay::add(const reading_devices::Place& place, CUstream stream) noexcept {
    const auto number = place.reader->begun.load(std::memory_order_relaxed) + 1;
    // Comes after the copy for whoever sees it (no flag: with a barrier of the whole system).
    if (driver.cuStreamWriteValue32_v2(stream, place.ended, number, CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) {
        return false;
    }
    place.reader->begun.store(number, std::memory_order_release);
    reader_ = place.reader;
    number_ = number;
    context_ = place.context;
    stream_ = stream;
    return true;
}

bool CopiesUnderWay::wait() noexcept {
    if (reader_ == nullptr) return true;
    const ErrnoKept kept;
    constexpr int kRounds = 1 << 14;  // some tens of microseconds
    bool ended = false;
    for (int round = 0; round < kRounds && !ended; ++round) {
        ended = !is_behind(reader_->ended.load(std::memory_order_acquire), number_);
    }
    if (!ended) {
        const Inside inside;
        const ContextScope scope(context_);
        const CaptureRelaxed relaxed;
        ended = scope.result() == CUDA_SUCCESS && driver.cuStreamSynchronize(stream_) == CUDA_SUCCESS;
        if (!ended) end_all(*reader_);
    }
    if (ended) in_flight.finished(mark_);
    reader_ = nullptr;
    return ended;
}

void CopiesUnderWay::forget(CUcontext context) noexcept {
    if (reader_ != nullptr && context_ == context) reader_ = nullptr;
}

namespace reading_devices {

namespace {

struct Places {
    std::vector<Place> all;  // without a reader: it is not to be asked for again
    struct Pinned {
        ExportTable* table;
        CUcontext context;  // that it was pinned in, which all others of this process use, too
    };
    std::vector<Pinned> pinned;
};
Places& places() noexcept {
    static NeverDestroyed<Places> all;
    return *all;
}

ReadingDevice* claim(ExportTable& table) noexcept {
    const auto self = static_cast<std::int64_t>(getpid());
    for (auto& reader : table.readers) {
        auto process = reader.process.load(std::memory_order_acquire);
        if (process == self && std::any_of(places().all.begin(), places().all.end(),
                                           [&](const Place& one) { return one.reader == &reader; })) {
            continue;
        }
        if (process != 0 && process != self && !is_gone(process)) continue;
        if (reader.process.compare_exchange_strong(process, self)) {
            end_all(reader);
            return &reader;
        }
    }
    return nullptr;
}

// Portable: for every context of the process.
bool pin(ExportTable& table, CUcontext context) noexcept {
    auto& all = places().pinned;
    if (std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.table == &table; })) return true;
    if (!pinned::take(sizeof table.readers)) return false;
    if (added(all, {&table, context}) != nullptr) {
        if (driver.cuMemHostRegister_v2(table.readers.data(), sizeof table.readers, CU_MEMHOSTREGISTER_PORTABLE) ==
            CUDA_SUCCESS) {
            return true;
        }
        all.pop_back();
    }
    pinned::give_back(sizeof table.readers);
    return false;
}

}  // namespace

const Place* place(ExportTable& table, CUcontext context) noexcept {
    auto& all = places().all;
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const Place& one) { return one.table == &table && one.context == context; });
    if (known != all.end()) return known->reader != nullptr ? &*known : nullptr;
    if (!in_flight.idle()) return nullptr;
    Place* const made = added(all, {&table, context, nullptr, 0});
    if (made == nullptr) return nullptr;
    const Inside inside;
    const ContextScope scope(context);
    const CaptureRelaxed relaxed;
    if (scope.result() == CUDA_SUCCESS && pin(table, context)) {
        auto* const reader = claim(table);
        if (reader != nullptr &&
            driver.cuPointerGetAttribute(&made->ended, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                         reinterpret_cast<CUdeviceptr>(&reader->ended)) == CUDA_SUCCESS) {
            made->reader = reader;
        }
    }
    return made->reader != nullptr ? made : nullptr;
}

void forget(CUcontext context) noexcept {
    auto& all = places().all;
    std::erase_if(all, [&](const Place& one) {
        if (one.context == context && one.reader != nullptr) end_all(*one.reader);
        return one.context == context;
    });
    std::erase_if(places().pinned, [&](const auto& one) {
        if (one.context != context) return false;
        pinned::give_back(sizeof one.table->readers);
        std::erase_if(all, [&](const Place& place) { return place.table == one.table; });
        return true;
    });
}

}  // namespace reading_devices

}  // namespace hpe::ipc
