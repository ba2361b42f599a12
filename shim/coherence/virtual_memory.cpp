// SPDX-License-Identifier: MIT
// A sorted map of mappings behind one lock, which is not held while objects are changed.
#include "shim/coherence/virtual_memory.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <set>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/driver/driver.h"
#include "shim/driver/primary_contexts.h"

namespace hpe::virtual_memory {

namespace {

struct Mapping {
    std::uintptr_t at = 0;
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    int device = -1;                         // -1: no linear memory of a device
    bool shared = false;                     // others may write the memory
    std::uint64_t writers = 0, readers = 0;  // devices that may write, that may read it here, a bit each
};

constexpr std::uint64_t bit(int device) noexcept { return device >= 0 && device < 64 ? std::uint64_t{1} << device : 0; }

struct State {
    Mutex mutex;
    std::map<std::uintptr_t, Mapping> mappings HPE_GUARDED_BY(mutex);
    std::map<CUmemGenericAllocationHandle, std::size_t> mapped HPE_GUARDED_BY(mutex);  // how often
    // How often it must be given back beside the first time; 0: that has happened, but the memory is still mapped.
    std::map<CUmemGenericAllocationHandle, unsigned> retained HPE_GUARDED_BY(mutex);
    std::set<CUmemGenericAllocationHandle> used_by_others HPE_GUARDED_BY(mutex);
};
State& state() {
    static NeverDestroyed<State> all;
    return *all;
}

int device_of(CUmemGenericAllocationHandle handle) noexcept {
    CUmemAllocationProp properties{};
    if (driver.cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS ||
        properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.allocFlags.usage != 0) {
        return -1;
    }
    return properties.location.id;
}

int current_device() noexcept {
    CUdevice device = -1;
    return driver.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

// Others may write the memory by another mapping from now on. Returns where it is mapped.
std::vector<Mapping> mark_shared(State& all, CUmemGenericAllocationHandle handle) HPE_REQUIRES(all.mutex) {
    std::vector<Mapping> found;
    for (auto& [at, mapping] : all.mappings) {
        if (mapping.handle != handle) continue;
        mapping.shared = true;
        found.push_back(mapping);
    }
    return found;
}
// nullptr: none.
Mapping* mapping_with(State& all, std::uintptr_t address) HPE_REQUIRES(all.mutex) {
    const auto after = all.mappings.upper_bound(address);
    if (after == all.mappings.begin()) return nullptr;
    auto& mapping = std::prev(after)->second;
    return address - mapping.at < mapping.bytes ? &mapping : nullptr;
}
std::vector<Mapping> mappings_in(State& all, std::uintptr_t at, std::size_t bytes) HPE_REQUIRES(all.mutex) {
    std::vector<Mapping> found;
    auto& mappings = all.mappings;
    for (auto it = mappings.lower_bound(at); it != mappings.end() && it->first - at < bytes; ++it) {
        found.push_back(it->second);
    }
    return found;
}

void others_use(State& all, const Mapping& mapping) HPE_REQUIRES(all.mutex) {
    const auto handle = mapping.handle;
    mark_shared(all, handle);
    // Of a handle that was given back the driver may use the number again.
    const auto known = all.retained.find(handle);
    if (known == all.retained.end() || known->second != 0) all.used_by_others.insert(handle);
}

CUresult hand_over(std::span<const Mapping> mappings, const char* reason) {
    for (const auto& mapping : mappings) {
        const auto result = coherence().hand_over_object(mapping.at, reason);
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

constexpr bool may_write(const CUmemAccessDesc& access) noexcept {
    return access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}
constexpr bool may_read(const CUmemAccessDesc& access) noexcept {
    return access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}
constexpr bool concerns(const CUmemAccessDesc& access, int device) noexcept {
    return access.location.type == CU_MEM_LOCATION_TYPE_DEVICE && access.location.id == device;
}

// Which devices have a right after that.
template <class Has>
std::uint64_t devices_after(std::uint64_t devices, std::span<const CUmemAccessDesc> accesses, Has&& has) noexcept {
    for (const auto& access : accesses) {
        if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
        const auto device = bit(access.location.id);
        devices = has(access) ? devices | device : devices & ~device;
    }
    return devices;
}

// In which the memory can be copied: of a device that may write it, or at least read it, if there is one by now.
CUcontext context_for(const Mapping& mapping) noexcept {
    const auto devices = mapping.writers != 0 ? mapping.writers : mapping.readers;
    CUcontext context = nullptr;
    if (devices != 0 && (devices & bit(current_device())) == 0) {
        const auto device = static_cast<CUdevice>(std::countr_zero(devices));
        if (primary_context(device, context) == CUDA_SUCCESS && context != nullptr) return context;
    }
    return current_context();
}

bool is_shared(std::uintptr_t at) {
    auto& all = state();
    const Locked lock(all.mutex);
    const auto found = all.mappings.find(at);
    return found != all.mappings.end() && found->second.shared;
}

constexpr const char* kShared = "its memory is mapped elsewhere, too, or used by another process or device";

// nullptr: of the current context.
void become_object(std::uintptr_t at, std::size_t bytes, CUcontext context) {
    // An access of another thread finds it in one of the two.
    coherence().track(at, bytes, Coherence::Peers::OwnAccess, context);
    if (coherence().object_at(at) != nullptr) device_owned::take(at);
    // Another thread may have mapped the memory elsewhere, or exported it, meanwhile.
    if (is_shared(at)) coherence().hand_over_object(at, kShared);
}

}  // namespace

CUresult mapped(std::uintptr_t at, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    const auto device = device_of(handle);
    // Both entries or none.
    decltype(State::mappings) mapping{{at, {at, bytes, handle, device}}};
    decltype(State::mapped) first_time{{handle, 0}};
    std::vector<Mapping> others;
    {
        auto& all = state();
        const Locked lock(all.mutex);
        const bool again = all.mapped.contains(handle);
        if (again) others = mark_shared(all, handle);
        mapping.begin()->second.shared = again || all.used_by_others.contains(handle);
        all.mapped.merge(first_time);
        ++all.mapped.find(handle)->second;
        all.mappings.erase(at);
        all.mappings.merge(mapping);
    }
    device_owned::add(at, bytes, device < 0 ? "it is no linear memory of a device" : "no device may write it yet");
    device_owned::make_read_only(at, bytes);
    return hand_over(others, kShared);
}

LosesAccess::LosesAccess(std::uintptr_t at, std::size_t bytes, std::span<const CUmemAccessDesc> accesses) {
    std::vector<Mapping> mappings;
    {
        auto& all = state();
        const Locked lock(all.mutex);
        mappings = mappings_in(all, at, bytes);
    }
    for (const auto& mapping : mappings) {
        const bool loses = std::any_of(accesses.begin(), accesses.end(), [&](const CUmemAccessDesc& access) {
            return concerns(access, mapping.device) && !may_write(access);
        });
        if (!loses) continue;
        const Object* const object = coherence().object_at(mapping.at);
        const auto context = object != nullptr ? object->context : nullptr;
        // For a while, perhaps: nobody else has come to use it.
        const LaunchInGate in_gate(coherence().launch_gate());
        result_ = coherence().hand_over_in_gate(mapping.at, "its device may not write it");
        if (result_ != CUDA_SUCCESS) return;
        ranges_.push_back({mapping.at, mapping.bytes, context});
    }
}

LosesAccess::~LosesAccess() {
    for (const auto& range : ranges_) {
        if (range.object_of != nullptr) become_object(range.at, range.bytes, range.object_of);
    }
}

void LosesAccess::lost() {
    for (const auto& range : ranges_) device_owned::make_read_only(range.at, range.bytes);
    ranges_.clear();
}

void give_access(std::uintptr_t at, std::size_t bytes, std::span<const CUmemAccessDesc> accesses) {
    std::vector<Mapping> gaining, shared, not_its_own;  // the last: that their own device may not write
    const int device = current_device();
    {
        auto& all = state();
        const Locked lock(all.mutex);
        for (auto mapping : mappings_in(all, at, bytes)) {
            mapping.writers = devices_after(mapping.writers, accesses, may_write);
            mapping.readers = devices_after(mapping.readers, accesses, may_read);
            all.mappings[mapping.at] = mapping;
            const bool gains = std::any_of(accesses.begin(), accesses.end(), [&](const CUmemAccessDesc& access) {
                return concerns(access, mapping.device) && may_write(access);
            });
            const bool is_memory = mapping.device >= 0, has = (mapping.writers & bit(mapping.device)) != 0;
            if (gains) (mapping.shared ? shared : gaining).push_back(mapping);
            if (is_memory && !has) not_its_own.push_back(mapping);
        }
    }
    for (const auto& mapping : not_its_own) {
        const bool others = mapping.writers != 0;
        device_owned::add(mapping.at, mapping.bytes,
                          others ? "its own device may not write it, another one may" : "no device may write it",
                          context_for(mapping));
        if (!others) device_owned::make_read_only(mapping.at, mapping.bytes);
    }
    for (const auto& mapping : shared) device_owned::add(mapping.at, mapping.bytes, kShared, context_for(mapping));
    for (const auto& mapping : gaining) {
        if (coherence().object_at(mapping.at) != nullptr) continue;
        if (mapping.device != device) {
            device_owned::add(mapping.at, mapping.bytes, "it became accessible while another device was current",
                              context_for(mapping));
            continue;
        }
        become_object(mapping.at, mapping.bytes, nullptr);
    }
}

std::vector<Object*> objects_in(std::uintptr_t at, std::size_t bytes) {
    std::vector<Object*> objects;
    auto& all = state();
    const Locked lock(all.mutex);
    for (const auto& mapping : mappings_in(all, at, bytes)) {
        if (Object* object = coherence().object_at(mapping.at)) objects.push_back(object);
    }
    return objects;
}

void unmapped(std::uintptr_t at, std::size_t bytes) noexcept {
    auto& all = state();
    const Locked lock(all.mutex);
    auto& mappings = all.mappings;
    for (auto it = mappings.lower_bound(at); it != mappings.end() && it->first - at < bytes; it = mappings.erase(it)) {
        const auto handle = it->second.handle;
        device_owned::remove(it->first);
        const auto times = all.mapped.find(handle);
        if (--times->second != 0) continue;
        all.mapped.erase(times);
        const auto known = all.retained.find(handle);
        if (known != all.retained.end() && known->second == 0) all.retained.erase(known);
    }
}

CUresult others_use(CUmemGenericAllocationHandle handle) {
    std::vector<Mapping> here;
    {
        auto& all = state();
        const Locked lock(all.mutex);
        all.used_by_others.insert(handle);
        here = mark_shared(all, handle);
    }
    return hand_over(here, kShared);
}

void others_use_mapping(std::uintptr_t address) {
    auto& all = state();
    const Locked lock(all.mutex);
    if (const Mapping* const mapping = mapping_with(all, address)) others_use(all, *mapping);
}

void others_use_what_is_no_object(std::uintptr_t at, std::size_t bytes) {
    auto& all = state();
    const Locked lock(all.mutex);
    auto mappings = mappings_in(all, at, bytes);
    if (const Mapping* const first = mapping_with(all, at)) mappings.push_back(*first);
    for (const auto& mapping : mappings) {
        if (coherence().object_at(mapping.at) == nullptr) others_use(all, mapping);
    }
}

void retained(CUmemGenericAllocationHandle handle, std::uintptr_t address) {
    auto& all = state();
    const Locked lock(all.mutex);
    const auto known = all.retained.find(handle);
    if (known != all.retained.end() && known->second == 0) {
        all.retained.erase(known);
    } else {
        ++all.retained[handle];
    }
    // All others may have been given back meanwhile.
    const Mapping* const mapping = mapping_with(all, address);
    if (mapping != nullptr && mapping->shared) all.used_by_others.insert(handle);
}

void released(CUmemGenericAllocationHandle handle) {
    auto& all = state();
    const Locked lock(all.mutex);
    const auto more = all.retained.find(handle);
    if (more != all.retained.end()) {
        if (more->second > 0 && --more->second == 0) all.retained.erase(more);
        return;
    }
    all.used_by_others.erase(handle);
    if (all.mapped.contains(handle)) all.retained[handle] = 0;
}

}  // namespace hpe::virtual_memory
