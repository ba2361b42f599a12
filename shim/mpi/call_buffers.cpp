// SPDX-License-Identifier: MIT
// Buffers in objects, replaced.
#include "shim/mpi/call_buffers.h"

#include <algorithm>
#include <climits>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "shim/base/address.h"
#include "shim/base/log.h"
#include "shim/coherence/lease.h"
#include "shim/copies/own_work.h"
#include "shim/mpi/device_messages.h"
#include "shim/mpi/host_memory.h"
#include "shim/mpi/type_layout.h"
#include "shim/mpi/world_ranks.h"

namespace hpe::mpi::HPE_MPI_ABI {

namespace {

constexpr MPI_Count kAll = std::numeric_limits<MPI_Count>::max();

// How far the view lies from a span of one object; nothing where the span does not lie in one.
std::optional<std::uintptr_t> to_view(Span span) noexcept {
    const Object* const object = coherence().object_of(span.begin);
    if (object == nullptr || span.bytes() > object->bytes_from(span.begin)) return std::nullopt;
    return reinterpret_cast<std::uintptr_t>(object->view) - object->base;
}

// Whether what is read is to be copied from the device, which leaves its blocks there. Elements with gaps are not,
// since the CPU packs what is not packed on the device.
bool dense(const Parts& parts) noexcept {
    return std::all_of(parts.begin(), parts.end(),
                       [](const Elements& elements) { return elements.shape.dense(elements.count); });
}
bool for_device(const Parts& parts) noexcept {
    const auto span = parts.span();
    return copied_by_device(span.begin, span.bytes()) && dense(parts);
}

// Elements without gaps: whether their bytes lie in the order of their type map. A type made of others may name them in
// another one.
bool in_order(const Elements& elements) noexcept {
    if (known_shapes.find(elements.type) != nullptr) return true;
    const auto one = layout_of(elements.type);
    const auto elements_layout =
        one ? Layout::repeated(*one, static_cast<std::uint64_t>(elements.count), elements.shape.extent())
            : std::nullopt;
    return elements_layout && elements_layout->is_dense();
}

// What was written last is there on return.
bool bring_to_device(Span span) noexcept {
    const Object* const object = coherence().object_of(span.begin);
    if (object == nullptr) return false;
    OwnWork work(object->context);
    return work && work.settle({span.begin, span.bytes()}) == CUDA_SUCCESS;
}

// Memory and the objects that it stands for are about to be copied.
void pin(const HostMemory& memory, const Elements& elements) noexcept {
    const auto span = elements.span();
    if (!HostMemory::keeps(span.bytes()) || !copied_by_device(span.begin, span.bytes())) return;
    if (const Object* const object = coherence().object_of(span.begin)) memory.pin(object->context);
}

}  // namespace

Parts::Parts(std::size_t most) noexcept {
    if (most <= 1) return;
    many_.reset(static_cast<Elements*>(::operator new[](most * sizeof(Elements), std::nothrow)));
    ok_ = many_ != nullptr;
}

Parts::Parts(Parts&& other) noexcept
    : one_(other.one_),
      many_(std::move(other.many_)),
      count_(std::exchange(other.count_, 0)),
      span_(other.span_),
      ok_(other.ok_) {}

void Parts::add(std::uintptr_t at, MPI_Count count, MPI_Datatype type, const Shape& shape) noexcept {
    if (!ok_ || count <= 0 || shape.bytes() <= 0) return;
    Elements* const place = begin() + count_++;
    new (place) Elements{at, count, type, shape};
    span_.join(place->span());
}

CallBuffers::CallBuffers(const void* caller, bool lasting) noexcept : caller_(caller), lasting_(lasting) {}

CallBuffers::CallBuffers(CallBuffers&& other) noexcept
    : caller_(other.caller_),
      lasting_(other.lasting_),
      failed_(other.failed_),
      other_rank_(other.other_rank_),
      receiver_(other.receiver_),
      partitions_(other.partitions_),
      count_(other.count_) {
    std::uninitialized_move(other.begin(), other.end(), begin());
    for (auto& buffer : other) buffer.left_there = false;
}

CallBuffers::~CallBuffers() {
    wait_for_readers();
    for (auto& buffer : *this) {
        if (buffer.message != nullptr) buffer.message->arrived();
        for (auto& elements : buffer.parts) elements.give_type_back();
        if (buffer.packed != nullptr) buffer.packed->elements.give_type_back();
        buffer.~Buffer();
    }
}

void CallBuffers::writes(void*& at, MPI_Count count, MPI_Datatype type, WindowCopy* window) noexcept {
    Parts parts = parts_of(at, count, type);
    const auto span = parts.span();
    if (window == nullptr || parts.empty() || !window->holds(span.begin, span.bytes())) {
        take(at, std::move(parts), Use::Write);
        return;
    }
    if (failed_) return;
    call_stacks::wait_was_needed();
    failed_ = !window->publish(span.begin, span.bytes());
    add(Use::Write, std::move(parts)).window = window;
    at = moved(at, address(window->memory()) - address(window->base()));
}

std::uintptr_t CallBuffers::replace(Parts&& parts, Use use, bool settled) noexcept {
    if (leave_to_collective(parts, use) || leave_uncached(parts, use)) return 0;
    const auto span = parts.span();
    const int to = use == Use::Send ? receiver_of(parts) : -1;
    const bool left_there = to >= 0 && !lasting_ && leave_on_device(parts, to, settled);
    auto& buffer = add(use, std::move(parts));
    buffer.left_there = left_there;
    if (left_there) return 0;
    // Parts of a view are pinned, and CUDA refuses to copy memory of which only a part is: an MPI that makes copies by
    // CUDA gets memory of its own.
    if (is_read(use) && !lasting_ && !for_device(buffer.parts) && !knows_cuda()) {
        if (const auto view = to_view(span)) {
            // Also brings the gaps.
            const CountedCopy counted(span.begin, span.bytes());
            const lease::ToRead ready(pointer(span.begin), span.bytes(), caller_, lease::Until::Later);
            if (ready.is_view()) return *view;
        }
    }
    const auto sort = to >= 0 ? HostMemory::Sort::Shared : HostMemory::Sort::Own;
    buffer.memory.reset(new (std::nothrow) HostMemory(pointer(span.begin), span.bytes(), sort));
    if (buffer.memory == nullptr || buffer.memory->at() == nullptr) {
        log::warn("no memory for {} bytes of an MPI call's buffer", span.bytes());
        failed_ = true;
        return 0;
    }
    if (to >= 0 && !lasting_ && send_as_it_comes(buffer, to)) return 0;
    buffer.shift = reinterpret_cast<std::uintptr_t>(buffer.memory->at()) - span.begin;
    for (auto& elements : buffer.parts) elements.in_objects = concerns(elements.span());
    // Lasting ones, too: MPICH 4.0 copies some buffers of persistent collectives when their request is made.
    if (!is_written(use) && partitions_ == 0 && !load(buffer)) failed_ = true;
    share(buffer, to);
    return buffer.shift;
}

std::optional<Lent> CallBuffers::lend(std::uintptr_t at, std::size_t bytes, Use use) noexcept {
    std::optional<Lent> lent(std::in_place, at, bytes, is_read(use) ? Lent::For::Reading : Lent::For::Writing);
    if (!*lent) lent.reset();
    return lent;
}

// Whether a message may go past the MPI. A short one only where the device would copy it, too: the CPU wants the others
// next.
bool CallBuffers::may_go_past(const Parts& parts) const noexcept {
    const auto span = parts.span();
    if (!ipc::on() || span.bytes() < (lasting_ ? ipc::kSmallestAlways : ipc::kSmallest)) return false;
    const Object* const object = coherence().object_of(span.begin);
    return object != nullptr && span.bytes() <= object->bytes_from(span.begin) &&
           (span.bytes() >= ipc::kSmallestAlways || copied_by_device(span.begin, span.bytes())) && dense(parts);
}

// Of a message that may go past the MPI: who gets it; -1: it may not.
int CallBuffers::receiver_of(const Parts& parts) const noexcept {
    if (!may_go_past(parts)) return -1;
    const int to = peer(receiver_.comm, receiver_.rank);
    return ipc::may_read(to, parts.span().bytes()) ? to : -1;
}

// A message for an MPI that moves device memory by itself, of which there is no host copy.
bool CallBuffers::leave_uncached(const Parts& parts, Use use) noexcept {
    if (!is_message(use) || !device_owned::any() || !dense(parts)) return false;
    const auto span = parts.span();
    const auto stretch = uncached::stretch(span.begin, span.bytes());
    return stretch.uncached && stretch.bytes == span.bytes() && moves_device_memory(stretch.context);
}

// Its receiver will read it there, so nothing is copied: but it is to be there.
bool CallBuffers::leave_on_device(const Parts& parts, int to, bool settled) noexcept {
    const auto span = parts.span();
    const Object* const object = coherence().object_of(span.begin);
    return object != nullptr && mostly_on_device(span.begin, span.bytes()) &&
           ipc::reads_from_device(object->allocation_of(span.begin), to, span.bytes()) &&
           (settled || bring_to_device(span));
}

// Its receiver waits for the bytes that the device brings to host memory from now on.
bool CallBuffers::send_as_it_comes(Buffer& buffer, int to) noexcept {
    const auto span = buffer.parts.span();
    const Object* const object = coherence().object_of(span.begin);
    const auto image = buffer.memory->image();
    if (object == nullptr || image.at == nullptr ||
        !ipc::reads_from_image(object->allocation_of(span.begin), to, span.bytes())) {
        return false;
    }
    buffer.memory->pin(object->context);
    if (!buffer.memory->pinned() || !bring_to_device(span)) return false;
    buffer.message.reset(new (std::nothrow) ipc::Export(span.begin, image, span.bytes(), to));
    if (buffer.message != nullptr && buffer.message->made()) return true;
    buffer.message.reset();
    return false;
}

// MPI's own copies have ended, those from device to device may not have.
void CallBuffers::wait_for_readers() const noexcept {
    if (std::any_of(begin(), end(), [](const Buffer& one) { return one.message != nullptr || one.left_there; })) {
        ipc::wait_for_readers();
    }
}

void CallBuffers::share(Buffer& buffer, int to) noexcept {
    const bool receives = buffer.use == Use::Receive;
    if (failed_ || (!receives && to < 0) || !may_go_past(buffer.parts)) return;
    const auto span = buffer.parts.span();
    const Object* const object = coherence().object_of(span.begin);
    const auto* const host = static_cast<const std::byte*>(pointer(span.begin + buffer.shift));
    if (receives) {
        buffer.arrival.reset(new (std::nothrow) ipc::Arrival(*object, span.begin, host, span.bytes()));
    } else if (bring_to_device(span)) {
        // The communicator may end before the message does.
        buffer.message.reset(new (std::nothrow)
                                 ipc::Export(span.begin, host, buffer.memory->image(), span.bytes(), to));
    }
}

std::byte* CallBuffers::replace_packed(const Elements& elements, Use use) noexcept {
    const auto span = elements.span();
    const auto bytes = elements.count * elements.shape.bytes();
    if (elements.shape.dense(elements.count)) return leave_to_mpi(elements, use);
    if (!may_be_packed_by_device(elements)) return nullptr;
    const bool now = is_read(use) && !lasting_;
    if (now && !mostly_on_device(span.begin, span.bytes())) return nullptr;
    const auto layout = layout_of(elements.type);
    if (!layout) return nullptr;
    if (std::byte* const there = pack_on_device(elements, *layout, use); there != nullptr || failed_) return there;
    std::unique_ptr<HostMemory> memory(new (std::nothrow) HostMemory(nullptr, static_cast<std::size_t>(bytes)));
    if (memory == nullptr || memory->at() == nullptr) return nullptr;
    std::byte* const packed = memory->at();
    if (now) pin(*memory, elements);
    if (now && !load_packed_by_device(elements, *layout, packed)) return nullptr;
    Parts parts;
    parts.add(elements.at, elements.count, elements.type, elements.shape);
    auto& buffer = add(use, std::move(parts));
    buffer.parts.begin()->in_objects = true;
    buffer.memory = std::move(memory);
    buffer.layout = layout;
    if (use == Use::Update && !lasting_ && !load(buffer)) failed_ = true;
    return packed;
}

// The object of a message that goes to or from its device as it is, or packed there; nullptr: it does not.
const Object* CallBuffers::to_be_left_on_device(const Elements& elements, Use use) const noexcept {
    const auto span = elements.span();
    if (!ipc::on() || lasting_ || !is_message(use) ||
        static_cast<std::size_t>(elements.count * elements.shape.bytes()) < ipc::kSmallestAlways ||
        !mostly_on_device(span.begin, span.bytes())) {
        return nullptr;
    }
    return coherence().object_of(span.begin);
}

// What is received is unpacked from there when it has come.
std::byte* CallBuffers::pack_on_device(const Elements& elements, const Layout& layout, Use use) noexcept {
    const auto bytes = elements.count * elements.shape.bytes();
    const Object* const object = to_be_left_on_device(elements, use);
    if (object == nullptr) return nullptr;
    const bool moved_by_mpi = moves_device_memory(object->context);
    if (!moved_by_mpi && use == Use::Send && peer(receiver_.comm, receiver_.rank) < 0) return nullptr;
    std::unique_ptr<Buffer::Packed> packed(
        new (std::nothrow) Buffer::Packed{{object->context, static_cast<std::size_t>(bytes)}, elements, layout});
    if (packed == nullptr || packed->memory.at() == 0) return nullptr;
    const auto at = packed->memory.at();
    if (use == Use::Send && !(elements.shape.dense(elements.count)
                                  ? copy_within_device(at, elements.span().begin, static_cast<std::size_t>(bytes))
                                  : load_packed_by_device(elements, layout, static_cast<std::byte*>(pointer(at))))) {
        return nullptr;
    }
    auto lent = moved_by_mpi ? lend(at, static_cast<std::size_t>(bytes), use) : std::nullopt;
    if (moved_by_mpi && !lent) return nullptr;
    const auto before = count_;
    const auto shift = moved_by_mpi ? 0 : replace(Parts(pointer(at), bytes, handles.byte), use, true);
    if (count_ == before) add(use);
    auto& buffer = *(end() - 1);
    if (buffer.arrival != nullptr) {
        if (const auto all = packed_by_device(elements, layout, elements.count))
            buffer.arrival->unpack(*all, elements.at);
    }
    buffer.packed = std::move(packed);
    if (lent) buffer.lent.emplace(std::move(*lent));
    return static_cast<std::byte*>(pointer(at + shift));
}

// The MPI moves device memory by itself: contiguous bytes, in their order.
std::byte* CallBuffers::leave_to_mpi(const Elements& elements, Use use) noexcept {
    const auto span = elements.span();
    if (span.bytes() > INT_MAX) return nullptr;  // they go as so many bytes
    const Object* const object = to_be_left_on_device(elements, use);
    if (object == nullptr || !moves_device_memory(object->context)) return nullptr;
    if (!in_order(elements)) return nullptr;
    if (auto lent = lend(span.begin, span.bytes(), use)) {
        add(use).lent.emplace(std::move(*lent));
        return static_cast<std::byte*>(pointer(span.begin));
    }
    const auto layout = layout_of(elements.type);
    return layout ? pack_on_device(elements, *layout, use) : nullptr;
}

// Some MPIs are slow with gaps. One that was not built for CUDA copies within a rank by the CPU, whatever is under it.
bool CallBuffers::leave_to_collective(const Parts& parts, Use use) noexcept {
    const auto span = parts.span();
    if (!collective_ || !ipc::on() || span.bytes() < ipc::kSmallestAlways || !dense(parts) ||
        (*collective_ == Copies::WithinRanks && !built_for_cuda())) {
        return false;
    }
    const Object* const object = coherence().object_of(span.begin);
    if (object == nullptr || !moves_device_memory(object->context)) return false;
    auto lent = lend(span.begin, span.bytes(), use);
    if (!lent) return false;
    add(use).lent.emplace(std::move(*lent));
    return true;
}

bool CallBuffers::load(const Buffer& buffer) noexcept {
    for (const auto& elements : buffer.parts) {
        pin(*buffer.memory, elements);
        if (!load(buffer, elements)) return false;
    }
    return true;
}

bool CallBuffers::load(const Buffer& buffer, const Elements& elements) noexcept {
    if (buffer.layout ? load_packed(elements, *buffer.layout, buffer.memory->at(), caller_)
                      : HPE_MPI_ABI::load(elements, buffer.shift, caller_))
        return true;
    log::warn("the bytes at {:#x} for an MPI call cannot be had", elements.at);
    return false;
}

bool CallBuffers::load() noexcept {
    if (partitions_ != 0) return true;
    return std::all_of(begin(), end(), [&](auto& buffer) {
        if (buffer.arrival != nullptr) buffer.arrival->again();
        const bool goes_past = buffer.message != nullptr && bring_to_device(buffer.parts.span());
        if (!goes_past || !buffer.message->again()) buffer.message.reset();
        return is_written(buffer.use) || load(buffer);
    });
}

bool CallBuffers::pends() const noexcept {
    return std::any_of(begin(), end(), [](const Buffer& one) {
        return one.memory != nullptr || one.packed != nullptr || one.lent || one.left_there || one.window != nullptr;
    });
}

bool CallBuffers::copies_under_way() const noexcept {
    return std::any_of(begin(), end(), [](const Buffer& one) {
        return one.message != nullptr || one.left_there || (one.arrival != nullptr && one.arrival->under_way());
    });
}

bool CallBuffers::left_to_mpi() const noexcept {
    return std::any_of(begin(), end(), [](const Buffer& one) { return one.lent.has_value(); });
}

void CallBuffers::keep_types() noexcept {
    for (auto& buffer : *this) {
        if (is_read(buffer.use) && !lasting_) continue;
        for (auto& elements : buffer.parts) elements.keep_type();
        if (buffer.packed != nullptr) buffer.packed->elements.keep_type();
    }
}

bool CallBuffers::store(const Buffer& buffer, MPI_Count bytes) noexcept {
    if (buffer.window != nullptr) return buffer.window->bring(buffer.parts.span().begin, buffer.parts.span().bytes());
    bool all_stored = true;
    const auto on_device = buffer.arrival != nullptr ? buffer.arrival->on_device() : std::size_t{0};
    if (!on_device) {
        log::warn("the bytes of an MPI call cannot be stored at {:#x}: the device has failed",
                  buffer.parts.span().begin);
        return false;
    }
    if (*on_device != 0) return static_cast<MPI_Count>(*on_device) >= bytes || store_rest(buffer, *on_device, bytes);
    for (const auto& elements : buffer.parts) {
        pin(*buffer.memory, elements);
        all_stored = store(buffer, elements, bytes) && all_stored;
    }
    return all_stored;
}

bool CallBuffers::unpack(const Buffer& buffer, MPI_Count bytes) noexcept {
    if (buffer.packed == nullptr || (buffer.arrival != nullptr && buffer.arrival->unpacked())) return true;
    const auto& [memory, elements, layout] = *buffer.packed;
    // The program may have freed it meanwhile.
    if (!concerns(elements.span())) return true;
    const auto* const from = static_cast<const std::byte*>(pointer(memory.at()));
    const auto came = std::min(bytes, elements.count * elements.shape.bytes());
    if (elements.shape.dense(elements.count)
            ? copy_within_device(elements.span().begin, memory.at(), static_cast<std::size_t>(came))
            : store_packed(elements, layout, from, bytes)) {
        return true;
    }
    log::warn("the bytes of an MPI call cannot be stored at {:#x}", elements.at);
    return false;
}

// What came in host memory besides what was written on the device.
bool CallBuffers::store_rest(const Buffer& buffer, std::size_t on_device, MPI_Count bytes) noexcept {
    const auto span = buffer.parts.span();
    const auto rest = std::min(span.bytes(), static_cast<std::size_t>(bytes)) - on_device;
    const auto at = span.begin + on_device;
    return rest == 0 || store_by_device(pointer(at), static_cast<const std::byte*>(pointer(at + buffer.shift)), rest,
                                        caller_) == rest;
}

bool CallBuffers::store(const Buffer& buffer, const Elements& elements, MPI_Count bytes) noexcept {
    // The program may have freed it meanwhile.
    if (elements.in_objects && !concerns(elements.span())) return true;
    const auto all = elements.count * elements.shape.bytes();
    if (buffer.layout ? store_packed(elements, *buffer.layout, buffer.memory->at(), bytes)
                      : HPE_MPI_ABI::store(elements, buffer.shift, bytes < all ? bytes : all, caller_))
        return true;
    log::warn("the bytes of an MPI call cannot be stored at {:#x}", elements.at);
    return false;
}

// Memory is pinned by one thread at a time: not here.
bool CallBuffers::load_partition(int partition) noexcept {
    if (begin()->use == Use::Write) return true;
    return load(*begin(), begin()->parts.begin()[partition]);
}

bool CallBuffers::store_partition(int partition) noexcept {
    if (begin()->use == Use::Read) return true;
    return store(*begin(), begin()->parts.begin()[partition], kAll);
}

bool CallBuffers::store() noexcept { return store(kAll); }

bool CallBuffers::store(MPI_Count bytes) noexcept {
    wait_for_readers();
    bool all_stored = true;
    for (auto& buffer : *this) {
        if (!is_read(buffer.use)) all_stored = store(buffer, bytes) && unpack(buffer, bytes) && all_stored;
    }
    return all_stored;
}

}  // namespace hpe::mpi::HPE_MPI_ABI
