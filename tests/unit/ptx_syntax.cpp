// SPDX-License-Identifier: MIT
// Parser, printer and verifier: what is printed parses to the same module, and damaged text is refused without harm.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "tests/unit/catch.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"

using namespace hpe;

namespace {

const std::string header = ".version 8.0\n.target sm_75\n.address_size 64\n";

std::vector<std::string> texts() {
    const char* list = std::getenv("HPE_TEST_PTX");
    std::vector<std::string> all;
    std::istringstream words(list == nullptr ? "" : list);
    for (std::string file; std::getline(words, file, ':');) {
        std::ifstream in(file);
        all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return all;
}

std::string again(const std::string& text) {
    std::string why;
    const auto m = ptx::parse(text, why);
    INFO(why << "\n" << text);
    REQUIRE(m != nullptr);
    return ptx::print(*m);
}

bool accepted(const std::string& text) {
    std::string why;
    const auto m = ptx::parse(header + text, why);
    const bool fine = m != nullptr && ptx::verify(*m, why);
    if (!fine) REQUIRE(why.starts_with("line "));
    return fine;
}

}  // namespace

TEST_CASE("parse and print are inverse on what nvcc writes", "[ptx]") {
    const auto all = texts();
    REQUIRE(!all.empty());
    for (const auto& text : all) {
        std::string why;
        const auto m = ptx::parse(text, why);
        INFO(why);
        REQUIRE(m != nullptr);
        REQUIRE(ptx::verify(*m, why));
        const std::string printed = ptx::print(*m);
        REQUIRE(again(printed) == printed);
    }
}

TEST_CASE("corners of the syntax", "[ptx]") {
    const std::string text =
        header +
        ".visible .global .align 8 .b8 t[24] = {1, 0x2, 03, 0b100, -1};\n"
        ".global .u64 p[2] = {generic(t)+8, t};\n.global .f32 f[2][2] = {{0f3F800000, 1.5}, {2.0}};\n"
        ".global .b8 m[8] = {0xFF(t), 0xFF00(t), 0xFF0000(t), 0xFF000000(t), 0xFF00000000(t), 0xFF0000000000(t), "
        "0xFF000000000000(t), 0xFF00000000000000(t)};\n"
        ".func (.param .b32 r) g(.param .b64 a, .param .align 8 .b8 b[16]) .noreturn ;\n"
        ".visible .entry k(.param .u64 .ptr .global .align 16 a) .maxntid 128, 1, 1 .minnctapersm 2\n{\n"
        ".reg .pred %p<3>; .reg .b32 %r<9>, %x; .reg .b64 %rd<4>; /* two\nlines */\n"
        "L0: @!%p1 bra L0; // to itself\nsetp.lt.and.s32 %p1|%p2, %r1, -(3 + 4) * 2, !%p2;\n"
        "{ .reg .b32 %t; L0: mov.b64 {%t, _}, %rd1; }\n"
        "ld.global.L1::evict_last.v2.b32 {%r1, %r2}, [%rd1+-8];\nmov.u32 %x, %tid.x;\n"
        "T: .branchtargets L0, L0;\nbrx.idx %r1, T;\nret; }\n";
    std::string why;
    const auto m = ptx::parse(text, why);
    INFO(why);
    REQUIRE(m != nullptr);
    REQUIRE(ptx::verify(*m, why));
    REQUIRE(again(ptx::print(*m)) == ptx::print(*m));
    const auto& f = std::get<ptx::Variable>(m->items[2]);
    REQUIRE(f.initial.size() == 4);  // the second row is filled up
    REQUIRE(f.bytes() == 16);
}

TEST_CASE("what is wrong is refused with its line", "[ptx]") {
    REQUIRE(accepted(".entry k() { ret; }"));
    for (const char* bad : {".entry k( { ret; }",
                            ".entry k() { ret }",
                            ".entry k() { add.s32 %r1, %r2, 1; }",
                            ".entry k() { bra NOWHERE; }",
                            ".global .b8 a[2] = {1, 2, 3};",
                            ".global .b8 a; .global .b8 a;",
                            ".entry k() { ret; } .entry k() { ret; }",
                            ".global .b8 a[99999999][9999999][99999];",
                            ".entry k() { { { ret; }",
                            ".reg .b32 %r;",
                            ".global .align 3 .b8 a;",
                            "\x01",
                            ".global .u32 a = 1/0;",
                            ".entry k() { mov.f32 %f, 0f12; }",
                            ".entry k(.param .u64.pred p) { ret; }",
                            ".global .pred p;",
                            ".entry k() { .local .pred p; ret; }",
                            ".entry k() { .nonsense 1; ret; }",
                            ".entry k() { .common, 1; ret; }",
                            ".entry k() { .reg .b32 .b64 %r; ret; }"})
        REQUIRE_FALSE(accepted(bad));
    std::string why;
    for (const char* head : {".version 8.0\n.target .address_size 64\n", ".version 8.0\n.target 75\n.address_size 64\n",
                             ".version .target sm_75\n.address_size 64\n"})
        REQUIRE(ptx::parse(head, why) == nullptr);
    std::string deep(100000, '{');
    REQUIRE_FALSE(accepted(".entry k() " + deep));
    REQUIRE_FALSE(accepted(".global .u32 a = " + std::string(100000, '(') + ";"));
    REQUIRE_FALSE(accepted(".global .u32 a = " + std::string(100000, '-') + "1;"));
}

TEST_CASE("damaged text does no harm", "[ptx]") {
    std::mt19937 random(2);
    for (const auto& text : texts()) {
        const std::string start = text.substr(0, 20000);
        for (int round = 0; round < 60; round++) {
            std::string copy = start;
            for (int n = 0; n < 4; n++) {
                const std::size_t at = random() % copy.size();
                if (n % 2 != 0)
                    copy.erase(at, random() % 20);
                else
                    copy[at] = static_cast<char>(random() % 96 + 32);
            }
            std::string why;
            const auto m = ptx::parse(copy, why);
            if (m == nullptr)
                REQUIRE(!why.empty());
            else
                ptx::verify(*m, why);
        }
    }
}
