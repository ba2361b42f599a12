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

namespace {

// An uncompressed fat binary with one entry per architecture: "90", "90a" of one architecture, "100f" of a family.
std::vector<std::byte> made_of(const std::vector<std::string>& architectures) {
    std::string entries;
    const auto word = [](std::string& to, std::uint64_t value, unsigned bytes) {
        for (unsigned n = 0; n < bytes; n++) to += static_cast<char>(value >> (8 * n) & 255);
    };
    for (const std::string& name : architectures) {
        std::string text = ".version 8.7\n.target sm_" + name + "\n.address_size 64\n";
        text.resize((text.size() + 8) / 8 * 8);
        const std::uint64_t specific = name.back() == 'a' ? 0x100000 : name.back() == 'f' ? 0x200000 : 0;
        word(entries, 1, 2), word(entries, 0x101, 2), word(entries, 64, 4), word(entries, text.size(), 8);
        word(entries, 0, 8), word(entries, 0x00090000, 4), word(entries, std::stoul(name), 4), word(entries, 0, 8);
        word(entries, 0x11 | specific, 8), word(entries, 0, 8), word(entries, 0, 8);
        entries += text;
    }
    std::string all;
    word(all, 0xba55ed50, 4), word(all, 1, 2), word(all, 16, 2), word(all, entries.size(), 8);
    all += entries;
    std::vector<std::byte> image(all.size());
    std::memcpy(image.data(), all.data(), all.size());
    return image;
}

std::string chosen(const std::vector<std::string>& architectures, int device) {
    Ptx ptx;
    std::string why;
    const auto image = made_of(architectures);
    if (!extract_ptx(std::span(image), ptx, why, device)) return why;
    const auto at = ptx.text.find("sm_");
    return ptx.text.substr(at + 3, ptx.text.find('\n', at) - at - 3);
}

}  // namespace

TEST_CASE("a device gets the best entry that it can run", "[fatbin]") {
    CHECK(chosen({"75", "90", "100", "80"}, 100) == "100");
    CHECK(chosen({"75", "90", "100", "80"}, 90) == "90");
    CHECK(chosen({"75", "90", "100", "80"}, 89) == "80");
    CHECK(chosen({"75", "120"}, 100) == "75");
    // Nothing fits: the caller sees the nearest and refuses it.
    CHECK(chosen({"120", "103"}, 100) == "103");
    CHECK(chosen({"90", "100"}, 80) == "90");
    // What one architecture or family alone runs is no choice on others unless there is no other.
    CHECK(chosen({"80", "90a"}, 100) == "80");
    CHECK(chosen({"90a"}, 100) == "90a");
    CHECK(chosen({"80", "90a"}, 90) == "90a");
    CHECK(chosen({"90a", "90"}, 90) == "90");
    CHECK(chosen({"100f", "90", "100a"}, 100) == "100f");
}

TEST_CASE("a program in parts lists them", "[fatbin]") {
    using hpe::fatbin::prelinked;
    const auto nothing = made_of({}), a = made_of({"75"}), b = made_of({"80", "120"});
    const void* const parts[] = {a.data(), b.data(), nullptr};
    struct {
        unsigned magic = 0x466243b1, version = 2;
        const void* data;
        const void* const* list;
    } wrapper{.data = nothing.data(), .list = parts};
    REQUIRE(prelinked(&wrapper) == std::vector<const void*>{a.data(), b.data()});
    Ptx ptx;
    std::string why;
    REQUIRE_FALSE(extract_ptx(static_cast<const void*>(&wrapper), ptx, why));
    for (const void* part : prelinked(&wrapper)) REQUIRE(extract_ptx(part, ptx, why));
    REQUIRE(ptx.arch == 80);
    // The same pointer means a file's name in the first version.
    wrapper.version = 1;
    REQUIRE(prelinked(&wrapper).empty());
    wrapper.version = 2, wrapper.list = nullptr;
    REQUIRE(prelinked(&wrapper).empty());
    for (const void* other : {static_cast<const void*>(nullptr), static_cast<const void*>(a.data()),
                              static_cast<const void*>(""), static_cast<const void*>(".version 8.0\n")})
        REQUIRE(prelinked(other).empty());
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
