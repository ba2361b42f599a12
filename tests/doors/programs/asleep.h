// SPDX-License-Identifier: MIT
// Whether another thread waits in the kernel: a handshake with calls that give no sign of their own.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

// True, too, of a thread that has ended: on a busy machine its call may be over before anybody looks.
inline bool asleep(pid_t thread) {
    const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
    char text[200] = {};
    const int file = open(path.c_str(), O_RDONLY);
    if (file < 0) return true;
    const bool ended = read(file, text, sizeof text - 1) <= 0;
    close(file);
    return ended || std::strstr(text, ") S ") != nullptr;
}

// Until the thread that stores its id there before a call waits in that call. A lock that it meets on its way is no
// such wait, hence several looks; a driver may wait without sleep, hence no more than a second of them.
inline void wait_until_it_waits(const std::atomic<pid_t>& thread) {
    while (thread == 0) sched_yield();
    const timespec rest{0, 1000000};
    for (int looks = 0, in_a_row = 0; looks < 1000 && in_a_row < 10; ++looks) {
        nanosleep(&rest, nullptr);
        in_a_row = asleep(thread) ? in_a_row + 1 : 0;
    }
}
