// SPDX-License-Identifier: MIT
// What the report and the timeline share: file names, JSON strings, symbols as people read them.
// Outside the fault path; any thread. Errors: open_output() returns -1 and write_all() false, with errno; memory that
// is missing is thrown (std::bad_alloc).
#pragma once

#include <string>
#include <string_view>

namespace hpe {

// "" if the kernel does not say.
std::string path_of_program();
// This process's rank in its MPI job, as the starter says (Open MPI, PMI, PMIx, Slurm); "" outside of one.
std::string rank_of_process();
// The destination with each "%p" replaced by the process id, and each "%r" by the rank, or 0.
std::string path_of_output(std::string destination);
// An empty file at that path, for writing; the caller closes it.
int open_output(const std::string& path) noexcept;
// Never raises a signal.
bool write_all(int fd, std::string_view text) noexcept;

// Appends a string of JSON, which is UTF-8. A path, a symbol or a thread's name may hold any byte: one that is part of
// no character becomes U+FFFD. An empty text is null.
void append_json_text(std::string& out, std::string_view text);

// "f(int)" for "_Z1fi"; what is no symbol of C++ stays as it is.
std::string demangled(const char* symbol);

}  // namespace hpe
