// SPDX-License-Identifier: MIT
// usage: roundtrip PROGRAM...
// Takes all PTX out of programs that nvcc built, and wants what the printer makes of it to parse to the same module.
// Fails for a program without PTX.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <vector>

#include "toolchain/fatbin/fatbin.h"
#include "toolchain/ptx/lexer.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"

using namespace hpe;

namespace {

using Tokens = std::vector<ptx::Token>;

bool equal(const ptx::Token& a, const ptx::Token& b) {
    using Kind = ptx::Token::Kind;
    const bool number = a.kind == Kind::Integer || a.kind == Kind::Float32 || a.kind == Kind::Float64;
    return a.kind == b.kind && (number ? a.value == b.value : a.text == b.text);
}

// The printer leaves out "+0" in addresses and the plus of "+-4", and gives each variable a declaration of its own.
bool same_tokens(const std::string& text, const std::string& printed, std::string& why) {
    Tokens a, b;
    if (!ptx::tokenize(text, a, why) || !ptx::tokenize(printed, b, why)) return false;
    std::size_t n = 0, m = 0;
    while (n < a.size() && m < b.size()) {
        if (equal(a[n], b[m])) {
            ++n, ++m;
        } else if (a[n].is('+') && n + 1 < a.size() && a[n + 1].is('-')) {
            ++n;
        } else if (a[n].is('+') && n + 1 < a.size() && a[n + 1].kind == ptx::Token::Kind::Integer &&
                   a[n + 1].value == 0) {
            n += 2;
        } else if (a[n].is(',') && b[m].is(';') && m + 3 < b.size() && b[m + 1].kind == ptx::Token::Kind::Dot) {
            ++n, m += 3;  // "; .reg .b32"
        } else {
            why = "line " + std::to_string(a[n].line) + ": '" + std::string(a[n].text) + "' is printed as '" +
                  std::string(b[m].text) + "'";
            return false;
        }
    }
    why = "something is missing at the end";
    return n == a.size() && m == b.size();
}

bool same_again(const std::string& text, std::string& why) {
    const auto module = ptx::parse(text, why);
    if (module == nullptr || !ptx::verify(*module, why)) return false;
    const std::string printed = ptx::print(*module);
    if (!same_tokens(text, printed, why)) return false;
    const auto again = ptx::parse(printed, why);
    if (again == nullptr) return false;
    why = "printed twice, it differs";
    return ptx::print(*again) == printed && again->items.size() == module->items.size();
}

// The PTX of every fat binary in the file, for every device that would take another entry of it; a .ptx file is text.
std::set<std::string> texts_of(std::span<const std::byte> file) {
    constexpr std::uint32_t magic = 0xba55ed50;
    std::set<std::string> texts;
    if (fatbin::Ptx plain; file.size() > 64 && file[0] != std::byte{0x7f}) {
        if (std::string why; fatbin::extract_ptx(file, plain, why)) texts.insert(plain.text);
        return texts;
    }
    for (std::size_t at = 0; at + 64 <= file.size(); at += 8) {
        if (std::memcmp(file.data() + at, &magic, sizeof magic) != 0) continue;
        // Where no entry fits the device, one that does not is given back.
        int device = fatbin::newest_arch;
        fatbin::Ptx ptx;
        std::string why;
        while (fatbin::extract_ptx(file.subspan(at), ptx, why, device) && ptx.arch <= device) {
            texts.insert(ptx.text);
            device = ptx.arch - 1;
        }
    }
    return texts;
}

}  // namespace

// The files named, and those in the folders named.
static std::vector<std::filesystem::path> files_of(int argc, char** argv) {
    std::vector<std::filesystem::path> files;
    for (int n = 1; n < argc; ++n) {
        if (!std::filesystem::is_directory(argv[n])) {
            files.emplace_back(argv[n]);
            continue;
        }
        for (const auto& entry : std::filesystem::directory_iterator(argv[n])) files.push_back(entry.path());
    }
    return files;
}

int main(int argc, char** argv) {
    unsigned wrong = 0, modules = 0;
    for (const auto& file : files_of(argc, argv)) {
        std::ifstream in(file, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
        const auto texts = texts_of(std::as_bytes(std::span(bytes)));
        if (texts.empty()) {
            std::printf("%s: no PTX in it\n", file.c_str());
            ++wrong;
        }
        for (const std::string& text : texts) {
            std::string why;
            ++modules;
            if (same_again(text, why)) continue;
            std::printf("%s: %s\n", file.c_str(), why.c_str());
            ++wrong;
        }
    }
    std::printf("%u modules, %u wrong\n", modules, wrong);
    return wrong != 0 || modules == 0;
}
