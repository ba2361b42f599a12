// SPDX-License-Identifier: MIT
// Buffers in objects, replaced.
#include "shim/mpi/staging.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <optional>

#include "shim/base/log.h"
#include "shim/coherence/lease.h"
#include "shim/copies/own_work.h"
#include "shim/mpi/host_memory.h"
#include "shim/mpi/type_layout.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

constexpr MPI_Count kAll = std::numeric_limits<MPI_Count>::max();

void* pointer(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

// How far the view lies from a span of one object; nothing where the span does not lie in one.
std::optional<std::uintptr_t> to_view(Span span) noexcept {
    const Object* const object = coherence().object_of(span.begin);
    if (object == nullptr || span.end > object->base + object->size) return std::nullopt;
    return reinterpret_cast<std::uintptr_t>(object->view) - object->base;
}

// Whether what is read is to be copied from the device, which leaves its blocks there. Elements with gaps are not,
// since the CPU packs what is not packed on the device.
bool for_device(const Parts& parts) noexcept {
    const auto span = parts.span();
    return span.bytes() >= bulk::kSmallest && mostly_on_device(span.begin, span.bytes()) &&
           std::all_of(parts.begin(), parts.end(),
                       [](const Elements& elements) { return elements.shape.dense(elements.count); });
}

// Memory and the objects that it stands for are about to be copied.
void pin(const HostMemory& memory, const Elements& elements) noexcept {
    const auto span = elements.span();
    const Object* const object = coherence().object_of(span.begin);
    if (object != nullptr && span.bytes() >= bulk::kSmallest && mostly_on_device(span.begin, span.bytes())) {
        memory.pin(object->context);
    }
}

}  // namespace

Parts::Parts(std::size_t most) noexcept {
    if (most <= 1) return;
    many_.reset(static_cast<Elements*>(::operator new[](most * sizeof(Elements), std::nothrow)));
    ok_ = many_ != nullptr;
}

void Parts::add(std::uintptr_t at, MPI_Count count, MPI_Datatype type, const Shape& shape) noexcept {
    if (!ok_ || count <= 0 || shape.bytes() <= 0) return;
    Elements* const place = begin() + count_++;
    new (place) Elements{at, count, type, shape};
    span_.join(place->span());
}

Staging::Staging(const void* caller, bool lasting) noexcept : caller_(caller), lasting_(lasting) {}

Staging::Staging(Staging&& other) noexcept
    : caller_(other.caller_),
      lasting_(other.lasting_),
      failed_(other.failed_),
      other_rank_(other.other_rank_),
      count_(other.count_) {
    std::uninitialized_move(other.begin(), other.end(), begin());
    for (auto& buffer : other) buffer.types_kept = false;
}

Staging::~Staging() {
    for (auto& buffer : *this) {
        if (buffer.types_kept) {
            for (auto& elements : buffer.parts) functions.MPI_Type_free(&elements.type);
        }
        buffer.~Buffer();
    }
}

bool Staging::concerns(Span span) const noexcept {
    return !span.empty() && lease::concerns(pointer(span.begin), span.bytes());
}

std::uintptr_t Staging::replace(Parts&& parts, Use use) noexcept {
    const auto span = parts.span();
    auto& buffer = *new (begin() + count_++) Buffer{use, std::move(parts), nullptr, 0, false, {}};
    if (use == Use::Read && !lasting_ && !for_device(buffer.parts)) {
        if (const auto view = to_view(span)) {
            // Also brings the gaps.
            const lease::ToRead ready(pointer(span.begin), span.bytes(), caller_);
            failed_ = failed_ || ready.memory() == nullptr;
            return *view;
        }
    }
    buffer.memory.reset(new (std::nothrow) HostMemory(pointer(span.begin), span.bytes()));
    if (buffer.memory == nullptr || buffer.memory->at() == nullptr) {
        log::warn("no memory for {} bytes of an MPI call's buffer", span.bytes());
        failed_ = true;
        return 0;
    }
    buffer.shift = reinterpret_cast<std::uintptr_t>(buffer.memory->at()) - span.begin;
    // Lasting ones, too: MPICH 4.0 copies some buffers of persistent collectives when their request is made.
    if (use != Use::Write && !load(buffer)) failed_ = true;
    return buffer.shift;
}

std::byte* Staging::replace_packed(const Elements& elements, Use use) noexcept {
    const auto span = elements.span();
    const auto bytes = elements.count * elements.shape.bytes();
    if (!may_be_packed_by_device(elements)) return nullptr;
    const bool now = use == Use::Read && !lasting_;
    if (now && !mostly_on_device(span.begin, span.bytes())) return nullptr;
    const auto layout = layout_of(elements.type);
    if (!layout) return nullptr;
    std::unique_ptr<HostMemory> memory(new (std::nothrow) HostMemory(nullptr, static_cast<std::size_t>(bytes)));
    if (memory == nullptr || memory->at() == nullptr) return nullptr;
    std::byte* const packed = memory->at();
    if (now) pin(*memory, elements);
    if (now && !load_packed_by_device(elements, *layout, packed)) return nullptr;
    Parts parts;
    parts.add(elements.at, elements.count, elements.type, elements.shape);
    auto& buffer = *new (begin() + count_++) Buffer{use, std::move(parts), std::move(memory), 0, false, layout};
    if (use == Use::Update && !lasting_ && !load(buffer)) failed_ = true;
    return packed;
}

bool Staging::load(const Buffer& buffer) noexcept {
    for (const auto& elements : buffer.parts) {
        pin(*buffer.memory, elements);
        if (buffer.layout ? load_packed(elements, *buffer.layout, buffer.memory->at(), caller_)
                          : HPE_MPI_ABI::load(elements, buffer.shift, caller_))
            continue;
        log::warn("the bytes at {:#x} for an MPI call cannot be had", elements.at);
        return false;
    }
    return true;
}

bool Staging::load() noexcept {
    return std::all_of(begin(), end(), [&](auto& buffer) { return buffer.use == Use::Write || load(buffer); });
}

bool Staging::pends() noexcept {
    for (auto& buffer : *this) {
        if (buffer.memory != nullptr) return true;
    }
    return false;
}

void Staging::keep_types() noexcept {
    for (auto& buffer : *this) {
        if (buffer.use == Use::Read && !lasting_) continue;
        for (auto& elements : buffer.parts) functions.MPI_Type_dup(elements.type, &elements.type);
        buffer.types_kept = true;
    }
}

bool Staging::store(const Buffer& buffer, MPI_Count bytes) noexcept {
    bool all_stored = true;
    for (const auto& elements : buffer.parts) {
        // The program may have freed it meanwhile.
        if (!concerns(elements.span())) continue;
        const auto all = elements.count * elements.shape.bytes();
        pin(*buffer.memory, elements);
        if (buffer.layout ? store_packed(elements, *buffer.layout, buffer.memory->at(), bytes)
                          : HPE_MPI_ABI::store(elements, buffer.shift, bytes < all ? bytes : all, caller_))
            continue;
        log::warn("the bytes of an MPI call cannot be stored at {:#x}", elements.at);
        all_stored = false;
    }
    return all_stored;
}

bool Staging::store() noexcept { return store(kAll); }

bool Staging::store(MPI_Count bytes) noexcept {
    bool all_stored = true;
    for (auto& buffer : *this) {
        if (buffer.use != Use::Read) all_stored = store(buffer, bytes) && all_stored;
    }
    return all_stored;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
