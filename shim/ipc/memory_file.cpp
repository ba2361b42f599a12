// SPDX-License-Identifier: MIT
// The files of a process, looked through.
#include "shim/ipc/memory_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace hpe::ipc {

int memory_file_of(pid_t process, std::string_view name) noexcept {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd", static_cast<int>(process));
    DIR* const folder = opendir(path);
    if (folder == nullptr) return -1;
    constexpr std::string_view kPrefix = "/memfd:", kSuffix = " (deleted)";
    int file = -1;
    while (const dirent* const entry = file < 0 ? readdir(folder) : nullptr) {
        char target[128];
        const auto length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target);
        if (length <= 0) continue;
        std::string_view found(target, static_cast<std::size_t>(length));
        if (!found.starts_with(kPrefix) || !found.ends_with(kSuffix)) continue;
        found.remove_prefix(kPrefix.size());
        found.remove_suffix(kSuffix.size());
        if (found == name) file = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
    }
    closedir(folder);
    return file;
}

}  // namespace hpe::ipc
