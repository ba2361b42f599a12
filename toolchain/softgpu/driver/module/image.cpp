// SPDX-License-Identifier: MIT
// What an image is, and whether the device takes it.
#include "toolchain/softgpu/driver/module/image.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "toolchain/softgpu/driver/device/driver.h"

namespace hpe::soft {
namespace {

std::uint32_t word(const void* image) {
    std::uint32_t value;
    std::memcpy(&value, image, sizeof value);
    return value;
}

constexpr unsigned long newest_ptx_version = 9;
constexpr std::uint32_t elf_magic = 0x464c457f, wrapper_magic = 0x466243b1, fatbin_magic = 0xba55ed50;

bool looks_like_ptx(const char* text) {
    // A short look: images come without a length.
    for (int i = 0; i < 4; ++i)
        if (!text[i]) return false;
    while (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n') ++text;
    return *text == '.' || *text == '/';
}

// The first number of .version, which stands in front of everything but comments. 0: there is none.
unsigned long major_version(const char* text) {
    for (;;) {
        while (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n') ++text;
        if (text[0] != '/') break;
        const bool line = text[1] == '/';
        const char* const end = std::strstr(text + 1, line ? "\n" : "*/");
        if (end == nullptr) return 0;
        text = end + (line ? 1 : 2);
    }
    return std::strncmp(text, ".version", 8) == 0 ? std::strtoul(text + 8, nullptr, 10) : 0;
}

}  // namespace

fatbin::Ptx ptx_of(const void* image, std::string& why, bool any_device) {
    fatbin::Ptx ptx;
    const char* text = static_cast<const char*>(image);
    if (text[0] == 0) {
        why = "empty image";
        fail(CUDA_ERROR_INVALID_IMAGE);
    }
    // Byte by byte: shorter texts end before a word does.
    const bool four = text[1] && text[2] && text[3];
    if (four && word(image) == elf_magic) {
        why = "a cubin holds machine code of NVIDIA's GPUs and no PTX";
        fail(CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    const bool binary = four && (word(image) == wrapper_magic || word(image) == fatbin_magic);
    if (!binary && !(four && looks_like_ptx(text))) {
        why = "neither a fat binary nor PTX";
        fail(CUDA_ERROR_INVALID_IMAGE);
    }
    if (!fatbin::extract_ptx(image, ptx, why, capability().number)) {
        const bool missing = why.find("no PTX") != std::string::npos || why.find("it is empty") != std::string::npos;
        fail(missing ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE);
    }
    // Of the driver's own first number everything is taken that the parser knows, as later toolkits of it write it.
    if (major_version(ptx.text.c_str()) > newest_ptx_version) {
        why = "PTX is of version " + std::to_string(major_version(ptx.text.c_str())) + ", the soft device takes " +
              std::to_string(newest_ptx_version);
        fail(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    }
    if (ptx.arch > capability().number && !any_device) {
        why = "PTX is for compute capability " + std::to_string(ptx.arch / 10) + "." + std::to_string(ptx.arch % 10) +
              ", the soft device has " + capability().name + " (HPE_SOFT_COMPUTE)";
        fail(binary ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_PTX);
    }
    return ptx;
}

std::string read_file(const char* name) {
    require(name != nullptr);
    FILE* file = std::fopen(name, "rbe");
    require(file != nullptr, CUDA_ERROR_FILE_NOT_FOUND);
    std::string bytes;
    char buffer[1 << 16];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) bytes.append(buffer, n);
    std::fclose(file);
    bytes.append(64, '\0');  // text must end, and a truncated header must not be read past its end
    return bytes;
}

}  // namespace hpe::soft
