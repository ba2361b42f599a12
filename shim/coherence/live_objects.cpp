// SPDX-License-Identifier: MIT
// A set behind one lock.
#include "shim/coherence/live_objects.h"

#include <mutex>
#include <unordered_set>

namespace hpe::live_objects {

namespace {
constinit std::mutex mutex;
std::unordered_set<Object*>& objects() {
    static auto* set = new std::unordered_set<Object*>;
    return *set;
}
}  // namespace

void add(Object* object) {
    std::scoped_lock lock(mutex);
    objects().insert(object);
}

void remove(Object* object) {
    std::scoped_lock lock(mutex);
    objects().erase(object);
}

std::vector<Object*> all() {
    std::scoped_lock lock(mutex);
    return {objects().begin(), objects().end()};
}

std::vector<Object*> of(CUcontext context) {
    std::vector<Object*> found;
    std::scoped_lock lock(mutex);
    for (Object* object : objects()) {
        if (object->context == context) found.push_back(object);
    }
    return found;
}

}  // namespace hpe::live_objects
