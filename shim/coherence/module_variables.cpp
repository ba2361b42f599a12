// SPDX-License-Identifier: MIT
// A map of variables behind one lock, which is held while one becomes an object: two threads may ask for it at once.
#include "shim/coherence/module_variables.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <set>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/driver/driver.h"
#include "shim/memory/allocations.h"

namespace hpe::module_variables {

namespace {

constexpr const char* kReason = "it is a variable of a module (__device__), and others in its pages cannot be shared";

struct State {
    Mutex mutex;
    std::map<std::uintptr_t, Variable> variables HPE_GUARDED_BY(mutex);
    // Chunks in which no variable is shared, and whose they are.
    std::map<std::uintptr_t, CUcontext> refused HPE_GUARDED_BY(mutex);
};
State& state() {
    static NeverDestroyed<State> all;
    return *all;
}

constinit std::atomic<bool> given{false};

std::uintptr_t chunk_of(std::uintptr_t address) noexcept { return address / Allocations::kChunk; }

// The variable that was found has come to the address of one whose module has gone. Where the driver did not say what
// it found the known one stays, so that what the CPU wrote to it is not lost.
bool is_other(const Variable& known, const Variable& found) noexcept {
    return found.buffer != 0 && (known.bytes != found.bytes || known.buffer != found.buffer);
}

// Nothing: managed memory. Where the driver does not say what the bytes belong to, no more is known than their address.
std::optional<Variable> ask_driver(std::uintptr_t address, std::size_t bytes, Owner owner) {
    Variable variable{address, bytes, 0, owner, nullptr};
    unsigned managed = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void* answers[] = {&managed, &variable.context, &variable.base, &variable.bytes, &variable.buffer};
    const bool said = driver.cuPointerGetAttributes(5, attributes, answers, address) == CUDA_SUCCESS;
    if (managed != 0) return {};
    const bool holds = variable.base <= address && address + bytes <= variable.base + variable.bytes;
    return said && holds ? variable : Variable{address, bytes, 0, owner, nullptr};
}

// nullptr: nobody has asked for the variable that holds these bytes.
const Variable* holding(const State& all, std::uintptr_t address, std::size_t bytes) HPE_REQUIRES(all.mutex) {
    auto next = all.variables.upper_bound(address);
    if (next == all.variables.begin()) return nullptr;
    const Variable& variable = std::prev(next)->second;
    return address + bytes <= variable.base + variable.bytes ? &variable : nullptr;
}

bool is_refused(State& all, const Variable& variable) HPE_REQUIRES(all.mutex) {
    return all.refused.contains(chunk_of(variable.base)) ||
           all.refused.contains(chunk_of(variable.base + variable.bytes - 1));
}

// Its pages, the first and the last of which others may lie in, are not to be opened by others.
void refuse(State& all, const Variable& variable) HPE_REQUIRES(all.mutex) {
    device_owned::add(variable.base, variable.bytes, kReason, variable.context);
    for (const auto address : {variable.base, variable.base + variable.bytes - 1}) {
        all.refused[chunk_of(address)] = variable.context;
    }
}

// Its module has gone in a way that libhpe does not see: what the CPU wrote to it is not to go to its successor.
void forget_stale(const Variable& stale) {
    auto allocation = stale.shared ? coherence().allocation_at(stale.base) : Allocation{};
    if (!stale.shared) device_owned::remove(stale.base);
    if (!allocation) return;
    if (coherence().begin_free(allocation, Coherence::Refusal::None) != CUDA_SUCCESS) return;
    coherence().end_uncached(allocation);
    coherence().finish_free(allocation);
}

// A symbol of the program's that it placed in its own memory (CU_JIT_GLOBAL_SYMBOL_ADDRESSES).
bool is_allocated(State& all, std::uintptr_t address) HPE_REQUIRES(all.mutex) {
    const auto allocation = coherence().allocation_of(address);
    if (!allocation || address >= allocation.base + allocation.bytes) return false;
    const auto variable = all.variables.find(allocation.base);
    return variable == all.variables.end() || !variable->second.shared;
}

// The modules that a library has in contexts where variables were found through modules.
std::vector<Owner> modules_of(CUlibrary library) {
    if (!given.load(std::memory_order_relaxed)) return {};
    State& all = state();
    std::set<CUcontext> contexts;
    {
        const Locked lock(all.mutex);
        for (const auto& [base, variable] : all.variables) {
            if (variable.owner.loaded_library == nullptr && variable.context != nullptr)
                contexts.insert(variable.context);
        }
    }
    std::vector<Owner> modules;
    for (const CUcontext context : contexts) {
        const ContextScope scope(context);
        CUmodule module = nullptr;
        if (scope.result() == CUDA_SUCCESS && driver.cuLibraryGetModule(&module, library) == CUDA_SUCCESS) {
            modules.push_back(Owner::of(module));
        }
    }
    return modules;
}

template <class Ends>
std::vector<Variable> take_if(State& all, Ends&& ends) HPE_REQUIRES(all.mutex) {
    std::vector<Variable> taken;
    for (auto at = all.variables.begin(); at != all.variables.end();) {
        if (!ends(at->second)) {
            ++at;
            continue;
        }
        taken.push_back(at->second);
        if (!at->second.shared) device_owned::remove(at->first);
        at = all.variables.erase(at);
    }
    return taken;
}

}  // namespace

void library_modules_given() noexcept { given.store(true, std::memory_order_relaxed); }

std::optional<Variable> if_new(std::uintptr_t address, std::size_t bytes, Owner owner) {
    if (bytes == 0) return {};
    const auto found = ask_driver(address, bytes, owner);
    if (!found) return {};
    State& all = state();
    const Locked lock(all.mutex);
    const Variable* const known = holding(all, address, bytes);
    return known == nullptr || is_other(*known, *found) ? found : std::nullopt;
}

void add(const Variable& variable) {
    State& all = state();
    const LaunchInGate in_gate(coherence().launch_gate());
    const Locked lock(all.mutex);
    if (const auto known = all.variables.find(variable.base); known != all.variables.end()) {
        if (!is_other(known->second, variable)) return;
        forget_stale(known->second);
        all.variables.erase(known);
    }
    if (is_allocated(all, variable.base)) return;
    auto& added = all.variables[variable.base] = variable;
    added.shared = variable.context != nullptr && !is_refused(all, variable) &&
                   coherence().track_variable(variable.context, variable.base, variable.bytes);
    if (added.shared) return;
    refuse(all, variable);
    for (auto& [base, other] : all.variables) {
        if (!other.shared || !is_refused(all, other)) continue;
        // Where its bytes cannot be brought to the device, neither can those of any other object.
        if (coherence().hand_over_in_gate(base, kReason) == CUDA_SUCCESS) other.shared = false;
    }
}

std::vector<Variable> take(Owner owner) {
    std::vector<Owner> owners{owner};
    if (owner.loaded_library != nullptr) {
        for (const auto& module : modules_of(owner.loaded_library)) owners.push_back(module);
    }
    State& all = state();
    const Locked lock(all.mutex);
    return take_if(all, [&](const Variable& variable) {
        return std::find(owners.begin(), owners.end(), variable.owner) != owners.end();
    });
}

std::vector<Variable> take(CUcontext context) {
    State& all = state();
    const Locked lock(all.mutex);
    const auto ends = [&](CUcontext its) { return its == context || its == nullptr; };
    std::erase_if(all.refused, [&](const auto& chunk) { return ends(chunk.second); });
    return take_if(all, [&](const Variable& variable) { return ends(variable.context); });
}

void put_back(std::span<const Variable> variables) {
    State& all = state();
    const Locked lock(all.mutex);
    for (const auto& variable : variables) {
        all.variables[variable.base] = variable;
        if (!variable.shared) refuse(all, variable);
    }
}

}  // namespace hpe::module_variables
