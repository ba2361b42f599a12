// SPDX-License-Identifier: MIT
// Included last by a file whose functions run while a CPU access is served, in a signal handler: the compiler then
// refuses what allocates, and what takes a lock that the interrupted program may hold. Such files are compiled each on
// its own (meson.build), so that no other file is refused anything.
//
// What these files call in others is not seen here: headers say of each function whether it may be called in the fault
// path.
#pragma once

#pragma GCC poison malloc calloc realloc reallocarray aligned_alloc posix_memalign free strdup
#pragma GCC poison make_unique make_shared vector deque unordered_map unordered_set
#pragma GCC poison ostream ofstream ifstream stringstream to_string
#pragma GCC poison pthread_mutex_lock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_create condition_variable
#pragma GCC poison strerror strerror_r dlopen dlsym dlclose dladdr getenv setenv fopen printf fprintf snprintf
