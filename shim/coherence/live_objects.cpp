// SPDX-License-Identifier: MIT
// A list through the objects, behind one lock.
#include "shim/coherence/live_objects.h"

#include <mutex>

namespace hpe::live_objects {

namespace {
constinit std::mutex mutex;
constinit Object *first = nullptr, *last = nullptr;
}  // namespace

void add(Object* object) {
    std::scoped_lock lock(mutex);
    object->next_live = nullptr;
    object->previous_live = last;
    (last != nullptr ? last->next_live : first) = object;
    last = object;
}

void remove(Object* object) {
    std::scoped_lock lock(mutex);
    (object->previous_live != nullptr ? object->previous_live->next_live : first) = object->next_live;
    (object->next_live != nullptr ? object->next_live->previous_live : last) = object->previous_live;
}

std::vector<Object*> all() {
    std::vector<Object*> found;
    std::scoped_lock lock(mutex);
    for (Object* object = first; object != nullptr; object = object->next_live) found.push_back(object);
    return found;
}

std::vector<Object*> of(CUcontext context) {
    std::vector<Object*> found;
    std::scoped_lock lock(mutex);
    for (Object* object = first; object != nullptr; object = object->next_live) {
        if (object->context == context) found.push_back(object);
    }
    return found;
}

}  // namespace hpe::live_objects
