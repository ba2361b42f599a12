// SPDX-License-Identifier: MIT
// Signal masks past our own doors, and threads of our own.
#include "shim/base/thread.h"

namespace hpe {

int SignalsBlocked::libc_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
    if (set == nullptr) return kernel::sigprocmask(how, set, old);
    sigset_t allowed;
    sigfillset(&allowed);  // all but those
    sigandset(&allowed, set, &allowed);
    return kernel::sigprocmask(how, &allowed, old);
}

bool start_thread(void (*body)(void*)) noexcept {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    // A signal that is sent to the process, and that all threads of the program block, must not come to this thread. A
    // fault of this thread's is libhpe's to serve.
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    kernel::sigprocmask(SIG_SETMASK, &blocked, &before);
    pthread_t thread;
    const auto run = [](void* argument) -> void* {
        this_thread.ours = true;
        reinterpret_cast<void (*)(void*)>(argument)(nullptr);
        return nullptr;
    };
    const bool made = pthread_create(&thread, &attributes, run, reinterpret_cast<void*>(body)) == 0;
    kernel::sigprocmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    return made;
}

void name_this_thread(const char* name) noexcept { pthread_setname_np(pthread_self(), name); }

}  // namespace hpe
