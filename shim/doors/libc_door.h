// SPDX-License-Identifier: MIT
// What every libc door is made of: the function behind it (Next), and what becomes of a thread that is cancelled
// there, or leaves it by a jump out of a signal handler.
//
// Cancellation unwinds through the door with the program's libgcc_s, which must meet no C++ cleanup of libhpe's own,
// statically linked C++ runtime: it would end the process. So these files are compiled without exceptions, and what a
// door holds while the function runs it holds by holding(). That is glibc's older form of pthread_cleanup_push, which
// its longjmp knows, too; the newer one would leave an entry behind, and a later cancellation run it.
//
// Threads: any; async-signal-safe. Errors: as of the function itself.
#pragma once

#include <pthread.h>

#include "shim/base/next_function.h"
#include "shim/doors/exported.h"

// Whom the report names as the place of an access.
#define CALLER __builtin_return_address(0)

extern "C" {
void _pthread_cleanup_push(_pthread_cleanup_buffer* entry, void (*routine)(void*), void* argument) noexcept;
void _pthread_cleanup_pop(_pthread_cleanup_buffer* entry, int execute) noexcept;
}

namespace hpe::doors {

// Calls `call`, a cancellation point perhaps; should the thread leave it in another way, what is held is destroyed.
template <class Held, class Call>
auto holding(Held& held, Call&& call) {
    _pthread_cleanup_buffer entry;
    _pthread_cleanup_push(
        &entry, [](void* all) { static_cast<Held*>(all)->~Held(); }, &held);
    const auto result = call();
    _pthread_cleanup_pop(&entry, 0);
    return result;
}

}  // namespace hpe::doors
