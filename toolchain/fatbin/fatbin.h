// SPDX-License-Identifier: MIT
// Reads what nvcc embeds in a program (the "fat binary") and gives back the PTX text of the best entry in it.
// Sizes in bytes; the image is only read, and the text is the caller's. Threads: any, there is no state. Errors: false,
// with a reason; damaged input of any kind included.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace hpe::fatbin {

// The newest compute capability that this code's users know.
constexpr int newest_arch = 100;

struct Ptx {
    std::string text;
    int arch = 0;  // compute capability as nvcc writes it: 75, 90, 100; 0: plain text without a .target line
};

// `image` is what a program passes to __cudaRegisterFatBinary, cuModuleLoadData and their relatives: a wrapper struct
// (magic 0x466243b1), a bare fat binary (0xba55ed50) or NUL-terminated PTX text. Such a pointer comes without a length,
// so the lengths that the image itself states are taken as its bounds. Of several entries the best for a device of
// compute capability `device` is taken. False: `why` says in a few words what is wrong.
bool extract_ptx(const void* image, Ptx& out, std::string& why, int device = newest_arch);

// The same for bytes whose number is known (a file, a fuzzer's input): a bare fat binary or PTX text.
bool extract_ptx(std::span<const std::byte> image, Ptx& out, std::string& why, int device = newest_arch);

// A program that was compiled in parts (nvcc -rdc=true) may be linked only when it is loaded: its wrapper struct then
// lists the fat binaries of the parts, each an image for extract_ptx(). Empty: `image` is no such wrapper.
std::vector<const void*> prelinked(const void* image);

}  // namespace hpe::fatbin
