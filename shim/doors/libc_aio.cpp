// SPDX-License-Identifier: MIT
// Doors of POSIX asynchronous I/O. Threads of glibc's own would read and write the program's memory later, by calls
// that no door sees, while kernels may use it.
//
// Handled: aio_read, aio_write and lio_listio with their 64-bit names. What lies in an object is transferred before the
// call returns, as the standard allows, where that cannot take for ever: for regular files and block devices. Results
// and notification are as of glibc's own (its <aio.h> shows where aio_error and aio_return look). Requests that glibc
// has of the same file come first, as it makes those of one file in the order of the calls; of one list those of ours
// come first.
// Forwarded as they are: requests for pipes, sockets and terminals, which end with EFAULT on what is not valid on the
// host at that moment, as without libhpe; aio_error, aio_return, aio_suspend, aio_cancel, aio_fsync.
// With this macro the headers make one name of aio_read and aio_read64.
#undef _FILE_OFFSET_BITS

#include <aio.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>

#include "shim/base/errno_kept.h"
#include "shim/base/kernel.h"
#include "shim/base/thread.h"
#include "shim/coherence/lease.h"
#include "shim/doors/libc_door.h"

using namespace hpe;
using namespace hpe::doors;

namespace {

constinit Next<int(aiocb*)> next_aio_read{"aio_read"}, next_aio_write{"aio_write"};
constinit Next<int(int, aiocb* const*, int, sigevent*)> next_lio_listio{"lio_listio"};

void* pointer(volatile void* at) noexcept { return const_cast<void*>(at); }

bool never_waits(int file) noexcept {
    struct stat status {};
    return kernel::raw(SYS_fstat, file, kernel::word(&status)) == 0 &&
           (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

// Whether glibc was ever given a request of a file that does not wait.
constinit std::atomic<bool> forwarded{false};
void is_forwarded(const aiocb* request) noexcept {
    if (forwarded.load(std::memory_order_relaxed) || request == nullptr || !never_waits(request->aio_fildes)) return;
    forwarded.store(true, std::memory_order_relaxed);
}
int forward(Next<int(aiocb*)>& next, aiocb* request) noexcept {
    is_forwarded(request);
    return next(request);
}

// Until glibc has made those that it has of the file: it makes one of no bytes behind them. Not for ever: all threads
// of glibc's may wait for pipes. No handler may jump out while glibc has that request.
void wait_for_forwarded(const aiocb& request) noexcept {
    if (!forwarded.load(std::memory_order_relaxed)) return;
    const SignalsBlocked blocked;
    aiocb last{};
    last.aio_fildes = request.aio_fildes;
    last.aio_reqprio = request.aio_reqprio;
    last.aio_sigevent.sigev_notify = SIGEV_NONE;
    if (next_aio_read(&last) != 0) return;
    const aiocb* const list[] = {&last};
    const timespec patience{1, 0};
    while (aio_error(&last) == EINPROGRESS) {
        if (aio_suspend(list, 1, &patience) != 0 && errno == EAGAIN) aio_cancel(last.aio_fildes, &last);
    }
}

struct Told {
    void (*function)(sigval);
    sigval value;
};

// aio(7), sigevent(7).
void notify(const sigevent& event) noexcept {
    if (event.sigev_notify == SIGEV_SIGNAL) {
        siginfo_t info{};
        info.si_signo = event.sigev_signo;
        info.si_code = SI_ASYNCIO;
        info.si_pid = getpid();
        info.si_uid = getuid();
        info.si_value = event.sigev_value;
        kernel::raw(SYS_rt_sigqueueinfo, getpid(), event.sigev_signo, kernel::word(&info));
    } else if (event.sigev_notify == SIGEV_THREAD) {
        auto* const told = new (std::nothrow) Told{event.sigev_notify_function, event.sigev_value};
        if (told == nullptr) return;  // as where no thread can be made
        const auto run = [](void* argument) -> void* {
            const Told work = *static_cast<Told*>(argument);
            delete static_cast<Told*>(argument);
            work.function(work.value);
            return nullptr;
        };
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        pthread_t thread;
        if (pthread_create(&thread,
                           event.sigev_notify_attributes != nullptr ? event.sigev_notify_attributes : &detached, run,
                           told) != 0) {
            delete told;
        }
        pthread_attr_destroy(&detached);
    }
}

// False: it is none of ours.
bool transferred(aiocb* request, int operation) noexcept {
    if (request == nullptr || (operation != LIO_READ && operation != LIO_WRITE)) return false;
    // glibc refuses it.
    if (request->aio_reqprio < 0 || request->aio_reqprio > AIO_PRIO_DELTA_MAX) return false;
    void* const memory = pointer(request->aio_buf);
    if (!lease::concerns(memory, request->aio_nbytes) || !never_waits(request->aio_fildes)) return false;
    const ErrnoKept kept;
    // Neither aio_read() nor aio_write() is a cancellation point.
    int cancellation = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    wait_for_forwarded(*request);
    const auto result = operation == LIO_READ
                            ? pread64(request->aio_fildes, memory, request->aio_nbytes, request->aio_offset)
                            : pwrite64(request->aio_fildes, memory, request->aio_nbytes, request->aio_offset);
    request->__return_value = result;
    __atomic_store_n(&request->__error_code, result < 0 ? errno : 0, __ATOMIC_RELEASE);
    pthread_setcancelstate(cancellation, nullptr);
    notify(request->aio_sigevent);
    return true;
}

}  // namespace

extern "C" {

HPE_DOOR int aio_read(aiocb* request) noexcept {
    return transferred(request, LIO_READ) ? 0 : forward(next_aio_read, request);
}
HPE_DOOR int aio_write(aiocb* request) noexcept {
    return transferred(request, LIO_WRITE) ? 0 : forward(next_aio_write, request);
}
HPE_DOOR int lio_listio(int mode, aiocb* const* list, int count, sigevent* event) noexcept {
    const auto ours = [](const aiocb* request) {
        return request != nullptr && request->aio_lio_opcode != LIO_NOP &&
               lease::concerns(pointer(request->aio_buf), request->aio_nbytes);
    };
    if ((mode != LIO_WAIT && mode != LIO_NOWAIT) || count <= 0 || std::none_of(list, list + count, ours)) {
        if (count > 0) std::for_each(list, list + count, is_forwarded);
        return next_lio_listio(mode, list, count, event);
    }
    // The others are glibc's, which only notifies where there are none.
    lease::Bounce room(nullptr, static_cast<std::size_t>(count) * sizeof(aiocb*));
    auto** const others = reinterpret_cast<aiocb**>(room.memory());
    if (others == nullptr) {
        errno = EAGAIN;
        return -1;
    }
    bool failed = false;
    int left = 0;
    for (int i = 0; i < count; ++i) {
        if (ours(list[i]) && transferred(list[i], list[i]->aio_lio_opcode)) {
            failed = failed || list[i]->__error_code != 0;
        } else {
            is_forwarded(list[i]);
            others[left++] = list[i];
        }
    }
    const int result = holding(room, [&] { return next_lio_listio(mode, others, left, event); });
    if (result != 0 || mode != LIO_WAIT || !failed) return result;
    errno = EIO;
    return -1;
}

// off_t has 64 bits: the same functions.
HPE_DOOR int aio_read64(aiocb64*) noexcept __attribute__((alias("aio_read")));
HPE_DOOR int aio_write64(aiocb64*) noexcept __attribute__((alias("aio_write")));
HPE_DOOR int lio_listio64(int, aiocb64* const*, int, sigevent*) noexcept __attribute__((alias("lio_listio")));

}  // extern "C"
