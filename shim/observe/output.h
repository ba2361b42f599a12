// SPDX-License-Identifier: MIT
// What the report and the timeline share: file names, JSON strings, symbols as people read them.
// Outside the fault path; any thread. Errors: open_output() returns -1 and write_all() false, with errno; memory that
// is missing is thrown (std::bad_alloc).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hpe {

// "" if the kernel does not say.
std::string path_of_program();
// This process's rank in its MPI job, as the starter says (Open MPI, PMI, PMIx, Slurm); "" outside of one.
std::string rank_of_process();
// The destination, which stays that place should the program go to another folder.
std::string from_this_folder(std::string destination);
// The destination with each "%p" replaced by the process id, and each "%r" by the rank, or 0.
std::string path_of_output(std::string destination);
// An empty file at that path, for writing; the caller closes it.
int open_output(const std::string& path) noexcept;
// Never raises a signal.
bool write_all(int fd, std::string_view text) noexcept;

// The text as a string of JSON, which is UTF-8. A path, a symbol or a thread's name may hold any byte: one that is part
// of no character becomes U+FFFD. An empty text is null.
std::string json_text(std::string_view text);

// A list of JSON, an element a line, behind so many blanks. item(element): its text; "": it is left out.
template <class All, class Item>
std::string json_list(const All& all, std::size_t blanks, Item&& item) {
    std::string list = "[";
    for (const auto& one : all) {
        const std::string text = item(one);
        if (text.empty()) continue;
        list += list.size() == 1 ? "\n" : ",\n";
        list.append(blanks, ' ') += text;
    }
    list += '\n';
    return list.append(blanks - 2, ' ') += ']';
}

// "f(int)" for "_Z1fi"; what is no symbol of C++ stays as it is.
std::string demangled(const char* symbol);

}  // namespace hpe
