// SPDX-License-Identifier: MIT
// A list through the objects, behind one lock.
#include "shim/coherence/live_objects.h"

#include "shim/base/spin_lock.h"

namespace hpe::live_objects {

namespace {
constinit SpinLock lock;
constinit Object* first HPE_GUARDED_BY(lock) = nullptr;
constinit Object* last HPE_GUARDED_BY(lock) = nullptr;

template <class Run>
void for_open(Run&& run) HPE_REQUIRES(lock) {
    for (Object* object = first; object != nullptr; object = object->next_live) {
        if (object->serial() % 2 == 1) run(object);
    }
}
}  // namespace

void add(Object* object) {
    const Locked locked(lock);
    object->next_live = nullptr;
    object->previous_live = last;
    (last != nullptr ? last->next_live : first) = object;
    last = object;
}

void remove(Object* object) {
    const Locked locked(lock);
    (object->previous_live != nullptr ? object->previous_live->next_live : first) = object->next_live;
    (object->next_live != nullptr ? object->next_live->previous_live : last) = object->previous_live;
}

std::vector<Object*> all() {
    std::vector<Object*> found;
    const Locked locked(lock);
    for_open([&](Object* object) { found.push_back(object); });
    return found;
}

std::vector<Object*> of(CUcontext context) {
    std::vector<Object*> found;
    const Locked locked(lock);
    for_open([&](Object* object) {
        if (object->context == context) found.push_back(object);
    });
    return found;
}

}  // namespace hpe::live_objects
