// SPDX-License-Identifier: MIT
// std::mutex, and scopes of locks, as clang's thread-safety analysis sees them (Hutchins, Ballman, Sutherland, "C/C++
// Thread Safety Analysis", SCAM 2014): what a lock guards says so, and the compiler refuses accesses without it.
// tests/hygiene/check_locks.py has clang look at all that is below the doors, and at MPI's. The order of locks is in
// docs/coherence.md.
//
// Threads: any, but a Mutex not in the fault path (spin_lock.h is for that). Errors: none; a mutex that cannot be
// locked ends the process, as std::mutex does.
#pragma once

#include <mutex>

#ifdef __clang__
#define HPE_ANALYSED(attribute) __attribute__((attribute))
#else
#define HPE_ANALYSED(attribute)
#endif
// Of a class that is a lock; of data.
#define HPE_LOCK(name) HPE_ANALYSED(capability(name))
#define HPE_GUARDED_BY(lock) HPE_ANALYSED(guarded_by(lock))
// Of functions: the caller holds it; the function takes it, gives it back, takes it if it returns true, takes it for
// granted.
#define HPE_REQUIRES(...) HPE_ANALYSED(requires_capability(__VA_ARGS__))
#define HPE_ACQUIRES(...) HPE_ANALYSED(acquire_capability(__VA_ARGS__))
#define HPE_RELEASES(...) HPE_ANALYSED(release_capability(__VA_ARGS__))
#define HPE_TRIES HPE_ANALYSED(try_acquire_capability(true))
#define HPE_ASSUMES HPE_ANALYSED(assert_capability(this))
// Where the analysis cannot follow; a comment says why it is right.
#define HPE_NOT_ANALYSED HPE_ANALYSED(no_thread_safety_analysis)

namespace hpe {

class HPE_LOCK("mutex") Mutex {
public:
    void lock() HPE_ACQUIRES() { mutex_.lock(); }
    bool try_lock() HPE_TRIES { return mutex_.try_lock(); }
    void unlock() HPE_RELEASES() { mutex_.unlock(); }
    // In a lambda: whoever calls it holds the lock.
    void assume_held() const noexcept HPE_ASSUMES {}

private:
    std::mutex mutex_;
};

// Holds a lock for a scope, or less: unlock() and lock() in between.
template <class M>
class HPE_ANALYSED(scoped_lockable) Locked {
public:
    explicit Locked(M& lock) HPE_ACQUIRES(lock) : lock_(lock) { lock.lock(); }
    // What try_lock() has taken.
    Locked(M& lock, std::adopt_lock_t) HPE_REQUIRES(lock) : lock_(lock) {}
    ~Locked() HPE_RELEASES() {
        if (held_) lock_.unlock();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

    void unlock() HPE_RELEASES() {
        lock_.unlock();
        held_ = false;
    }
    void lock() HPE_ACQUIRES() {
        lock_.lock();
        held_ = true;
    }

private:
    M& lock_;
    bool held_ = true;
};

}  // namespace hpe
