// SPDX-License-Identifier: MIT
// A map of variables behind one lock, which is held while one becomes an object: two threads may ask for it at once.
#include "shim/coherence/module_variables.h"

#include <map>

#include "shim/base/mutex.h"
#include "shim/base/thread.h"
#include "shim/coherence/coherence.h"
#include "shim/coherence/device_owned.h"
#include "shim/driver/driver.h"

namespace hpe::module_variables {

namespace {

// Of a variable, what it was found through; of a module, its library.
struct Part {
    const void* owner;
    CUcontext context;
};

struct State {
    Mutex mutex;
    std::map<std::uintptr_t, Part> variables HPE_GUARDED_BY(mutex);
    std::map<const void*, Part> modules HPE_GUARDED_BY(mutex);
};
State& state() {
    static auto* all = new State;
    return *all;
}

struct Place {
    unsigned managed = 0;
    CUcontext context = nullptr;
};
Place place_of(std::uintptr_t base) noexcept {
    Place place;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_CONTEXT};
    void* answers[] = {&place.managed, &place.context};
    return driver.cuPointerGetAttributes(2, attributes, answers, base) == CUDA_SUCCESS ? place : Place{};
}

bool goes_with(State& all, const Part& variable, const void* owner) HPE_REQUIRES(all.mutex) {
    if (variable.owner == owner) return true;
    const auto module = all.modules.find(variable.owner);
    return module != all.modules.end() && module->second.owner == owner;
}

}  // namespace

void found(std::uintptr_t base, std::size_t bytes, const void* owner) {
    State& all = state();
    const LaunchInGate in_gate(coherence().launch_gate());
    const Locked lock(all.mutex);
    if (bytes == 0 || all.variables.contains(base)) return;
    const auto place = place_of(base);
    if (place.managed != 0) return;
    all.variables[base] = {owner, place.context};
    if (place.context == nullptr || !coherence().track_variable(place.context, base, bytes)) {
        device_owned::add(base, bytes, "it is a variable of a module (__device__) in pages that others use, too");
    }
}

void is_part(const void* module, const void* library) {
    CUcontext context = nullptr;
    driver.cuCtxGetCurrent(&context);
    State& all = state();
    const Locked lock(all.mutex);
    all.modules[module] = {library, context};
}

std::vector<std::uintptr_t> of(const void* owner) {
    State& all = state();
    const Locked lock(all.mutex);
    std::vector<std::uintptr_t> bases;
    for (const auto& [base, variable] : all.variables) {
        if (goes_with(all, variable, owner)) bases.push_back(base);
    }
    return bases;
}

void unloaded(const void* owner, std::span<const std::uintptr_t> bases) {
    State& all = state();
    const Locked lock(all.mutex);
    for (const auto base : bases) {
        all.variables.erase(base);
        device_owned::remove(base);
    }
    std::erase_if(all.modules, [&](const auto& part) { return part.first == owner || part.second.owner == owner; });
}

void forget(CUcontext context) {
    State& all = state();
    const Locked lock(all.mutex);
    std::erase_if(all.modules, [&](const auto& part) { return part.second.context == context; });
    std::erase_if(all.variables, [&](const auto& entry) {
        if (entry.second.context != context && entry.second.context != nullptr) return false;
        device_owned::remove(entry.first);
        return true;
    });
}

}  // namespace hpe::module_variables
