// SPDX-License-Identifier: MIT
// The fat binary reader on what nvcc writes in each compression mode (HPE_TEST_FATBINS) and on damaged copies of it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <vector>

#include "tests/unit/catch.h"
#include "toolchain/fatbin/fatbin.h"
#include "toolchain/ptx/parser.h"

using hpe::fatbin::extract_ptx;
using hpe::fatbin::Ptx;

namespace {

std::vector<std::vector<std::byte>> images() {
    const char* list = std::getenv("HPE_TEST_FATBINS");
    std::vector<std::vector<std::byte>> all;
    std::istringstream words(list == nullptr ? "" : list);
    for (std::string file; std::getline(words, file, ':');) {
        std::ifstream in(file, std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
        auto& image = all.emplace_back(bytes.size());
        std::memcpy(image.data(), bytes.data(), bytes.size());
    }
    return all;
}

}  // namespace

TEST_CASE("every compression mode gives the same PTX", "[fatbin]") {
    const auto all = images();
    REQUIRE(all.size() >= 5);
    std::string first;
    for (const auto& image : all) {
        Ptx ptx;
        std::string why;
        REQUIRE(extract_ptx(std::span(image), ptx, why));
        REQUIRE(ptx.arch == 90);
        REQUIRE(hpe::ptx::parse(ptx.text, why) != nullptr);
        if (first.empty()) first = ptx.text;
        // Uncompressed entries are padded with newlines, so only what is in the lines counts.
        const auto strip = [](std::string s) {
            s.erase(0, s.find_first_not_of('\n'));
            return s;
        };
        REQUIRE(strip(ptx.text).substr(0, 200) == strip(first).substr(0, 200));

        Ptx bare, wrapped;
        REQUIRE(extract_ptx(static_cast<const void*>(image.data()), bare, why));
        REQUIRE(bare.text == ptx.text);
        struct {
            unsigned magic = 0x466243b1, version = 1;
            const void* data;
            const void* unused = nullptr;
        } wrapper;
        wrapper.data = image.data();
        REQUIRE(extract_ptx(static_cast<const void*>(&wrapper), wrapped, why));
        REQUIRE(wrapped.text == ptx.text);
    }
}

TEST_CASE("plain text and nonsense", "[fatbin]") {
    Ptx ptx;
    std::string why;
    REQUIRE(extract_ptx(static_cast<const void*>(".version 8.0\n.target sm_86\n.address_size 64\n"), ptx, why));
    REQUIRE(ptx.arch == 86);
    for (const char* text : {"", "x",
                             "\x7f"
                             "ELF",
                             "hello, world"}) {
        why.clear();
        REQUIRE_FALSE(extract_ptx(static_cast<const void*>(text), ptx, why));
        REQUIRE_FALSE(why.empty());
    }
    REQUIRE_FALSE(extract_ptx(nullptr, ptx, why));
}

TEST_CASE("damaged fat binaries are refused and nothing else", "[fatbin]") {
    std::mt19937 random(1);
    for (const auto& image : images())
        for (int round = 0; round < 400; round++) {
            auto copy = image;
            if (round % 3 == 0) copy.resize(random() % copy.size());
            for (unsigned n = random() % 8 + 1; n-- > 0 && !copy.empty();)
                copy[random() % std::min<std::size_t>(copy.size(), round % 2 != 0 ? 200 : copy.size())] =
                    std::byte(random());
            Ptx ptx;
            std::string why;
            if (!extract_ptx(std::span(copy), ptx, why)) REQUIRE_FALSE(why.empty());
        }
}
