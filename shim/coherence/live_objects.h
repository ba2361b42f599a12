// SPDX-License-Identifier: MIT
// All objects, for the operations that go through all of them: they get the open ones. An object stays on the list from
// its free until it is recycled. Outside the fault path; any thread. Objects are borrowed: the caller makes sure that
// none is freed meanwhile. Errors: std::bad_alloc.
#pragma once

#include <cuda.h>

#include <vector>

#include "shim/memory/object.h"

namespace hpe::live_objects {

void add(Object* object);
void remove(Object* object);
std::vector<Object*> all();
std::vector<Object*> of(CUcontext context);

}  // namespace hpe::live_objects
