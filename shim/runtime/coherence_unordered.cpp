// SPDX-License-Identifier: MIT
// Coherence: blocks that became valid while device work around them is under way, and how they go back. Class of this
// file: that of the fault path.
#include "shim/runtime/coherence_unordered.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "shim/base/log.h"
#include "shim/base/thread.h"
#include "shim/runtime/arena.h"
#include "shim/runtime/engine.h"
#include "shim/runtime/pager.h"
#include "shim/runtime/real.h"

namespace hpe {

namespace {

// Unordered is private to Coherence, and thread-local state must need no constructor: raw storage.
struct UnorderedList {
    static constexpr std::size_t kCapacity = 32, kEntry = 32;
    std::size_t count;
    alignas(8) std::byte storage[kCapacity * kEntry];

    template <class Entry>
    Entry* entries() noexcept {
        static_assert(sizeof(Entry) == kEntry);
        return reinterpret_cast<Entry*>(storage);
    }
};
thread_local constinit UnorderedList unordered_list __attribute__((tls_model("initial-exec"))){};

}  // namespace

bool Coherence::remember_unordered(Unordered entry, State next) noexcept {
    auto& list = unordered_list;
    auto* const entries = list.entries<Unordered>();
    auto* const end = entries + list.count;
    auto* known = std::find_if(entries, end, [&](const Unordered& e) {
        return e.object == entry.object && e.serial == entry.serial && e.block == entry.block;
    });
    if (next == State::Dirty) {
        void* memory = MAP_FAILED;
        for (int attempt = 0; attempt < 2 && memory == MAP_FAILED; ++attempt) {
            memory = mmap(nullptr, entry.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        if (memory == MAP_FAILED) return false;
        entry.twin = static_cast<std::byte*>(memory);
        std::memcpy(entry.twin, entry.object->view + entry.object->offset_of(entry.block), entry.bytes);
    }
    if (known == end && list.count == UnorderedList::kCapacity) {
        // Make room: the oldest goes back now, and is fetched again should the callback return to it.
        Unordered oldest = entries[0];
        std::move(entries + 1, end, entries);
        --list.count;
        known = end - 1;
        with_driver(true, [&] { end_one(oldest); });
    }
    if (known == entries + list.count) ++list.count;
    *known = entry;
    return true;
}

// Of the calling thread's callback.
void Coherence::end_all_of(const Object& object) noexcept {
    auto& list = unordered_list;
    auto* const entries = list.entries<Unordered>();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.count; ++i) {
        if (entries[i].object == &object) {
            with_driver(true, [&] { end_one(entries[i]); });
        } else {
            entries[kept++] = entries[i];
        }
    }
    list.count = kept;
}

void Coherence::end_unordered() noexcept {
    auto& list = unordered_list;
    if (list.count == 0) return;
    const int saved = errno;
    SignalsBlocked blocked;
    with_driver(this_thread.in_callback != 0 || this_thread.inside != 0, [this, &list] {
        for (std::size_t i = 0; i < list.count; ++i) end_one(list.entries<Unordered>()[i]);
    });
    list.count = 0;
    errno = saved;
}

void Coherence::damaged(const Object& object, CUresult result) noexcept {
    damaged_context_.store(object.context, std::memory_order_relaxed);
    if (damage_.exchange(result, std::memory_order_acq_rel) != CUDA_SUCCESS) return;
    log::error("cannot send what a callback wrote to object {:#x}: {}; the calls that follow fail", object.base,
               error_name(result));
}

// Sends back what was written and makes the block Invalid. Where driver calls are allowed.
void Coherence::end_one(Unordered& entry) noexcept {
    Object& object = *entry.object;
    if (!object.alive(entry.serial)) {
        if (entry.twin != nullptr) munmap(entry.twin, entry.bytes);
        return;
    }
    Block& block = object.block(entry.block);
    const auto before = block.lock();
    auto after = before;
    block.take_back();
    const auto offset = object.offset_of(entry.block);
    const auto bytes = object.bytes_of(entry.block);
    if (object.alive(entry.serial) && entry.block < object.blocks() && valid_on_host(before) &&
        (!object.shadowed.load(std::memory_order_acquire) ||
         pager::protect(object.base + offset, bytes, State::Invalid) ||
         pager::close_shadow(object.base, object.size, Arena::closed(object.view)))) {
        auto result = CUDA_SUCCESS;
        if (before == State::Dirty) {
            const auto* now = object.view + offset;
            // A coarsened object is sent whole: its twin covers only a part.
            const bool compare = entry.twin != nullptr && bytes == entry.bytes;
            for (std::size_t at = 0; compare && at < bytes && result == CUDA_SUCCESS;) {
                if (now[at] == entry.twin[at]) {
                    ++at;
                    continue;
                }
                const auto begin = at;
                while (at < bytes && now[at] != entry.twin[at]) ++at;
                result = engine.flush(object, offset + begin, at - begin, Engine::Order::Unordered);
            }
            if (!compare) result = engine.flush(object, offset, bytes, Engine::Order::Unordered);
            const auto drained = engine.drain();
            if (result == CUDA_SUCCESS) result = drained;
        }
        if (result == CUDA_SUCCESS) {
            after = State::Invalid;
            object.valid.fetch_sub(1, std::memory_order_release);
        } else {
            damaged(object, result);
        }
    } else if (object.alive(entry.serial) && entry.block < object.blocks() && before == State::Dirty) {
        damaged(object, CUDA_ERROR_OUT_OF_MEMORY);
    }
    block.unlock(after);
    if (entry.twin != nullptr) munmap(entry.twin, entry.bytes);
}

}  // namespace hpe
