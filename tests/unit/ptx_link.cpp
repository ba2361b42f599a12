// SPDX-License-Identifier: MIT
// The PTX linker as text in, text out; the result must be what the parser and the verifier accept.
#include "tests/unit/catch.h"
#include "toolchain/ptx/link.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"

using namespace hpe;

namespace {

const std::string header = ".version 8.0\n.target sm_75\n.address_size 64\n";

// The linked text, or "error: " and why.
std::string linked(const std::vector<std::string>& texts) {
    std::vector<ptx::LinkInput> inputs;
    std::string why;
    for (const auto& text : texts) {
        auto m = ptx::parse(text.starts_with(".version") ? text : header + text, why);
        INFO(why);
        REQUIRE(m != nullptr);
        inputs.push_back({std::move(m), std::to_string(inputs.size())});
    }
    const auto m = ptx::link(
        std::move(inputs), [](const std::string& name) { return name == "vprintf"; }, why);
    if (m == nullptr) {
        REQUIRE(!why.empty());
        return "error: " + why;
    }
    const std::string text = ptx::print(*m);
    const auto again = ptx::parse(text, why);
    INFO(why << "\n" << text);
    REQUIRE(again != nullptr);
    REQUIRE(ptx::verify(*again, why));
    REQUIRE(ptx::print(*again) == text);
    return text;
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

}  // namespace

TEST_CASE("a name that is local to two modules is renamed, where it is not hidden", "[ptx]") {
    const std::string second =
        ".global .u32 g = 5;\n.global .u64 p = generic(g);\n.func h () { ret; }\n"
        ".visible .entry k (.param .u64 g) { .reg .b64 %rd<3>; ld.param.u64 %rd1, [g]; call h, (); ret; }\n"
        ".visible .entry l () { .reg .b64 %rd<3>; mov.u64 %rd1, g; { .local .u32 g; mov.u64 %rd2, g; } "
        "mov.u64 %rd1, g; bra h; h: ret; }\n";
    const std::string text = linked({".global .u32 g = 4;\n.func h () { ret; }\n", second});
    REQUIRE(count(text, ".u32 g = 4") == 1);
    REQUIRE(count(text, ".u32 g$1 = 5") == 1);
    REQUIRE(count(text, "= generic(g$1)") == 1);
    REQUIRE(count(text, "ld.param.u64 %rd1, [g]") == 1);
    REQUIRE(count(text, "mov.u64 %rd1, g$1;") == 2);
    REQUIRE(count(text, "mov.u64 %rd2, g;") == 1);
    REQUIRE(count(text, "call h$2") == 1);
    REQUIRE(count(text, "bra h;") == 1);
}

TEST_CASE("one definition is chosen for a name", "[ptx]") {
    REQUIRE(count(linked({".weak .global .u32 v = 1;", ".visible .global .u32 v = 2;"}), "v = 2") == 1);
    REQUIRE(count(linked({".weak .global .u32 v = 1;", ".visible .global .u32 v = 2;"}), " v") == 1);
    REQUIRE(count(linked({".weak .global .u32 v = 1;", ".weak .global .u32 v = 2;"}), "v = 1") == 1);
    REQUIRE(count(linked({".common .global .u32 v;", ".weak .global .u32 v = 2;"}), "v = 2") == 0);
    REQUIRE(count(linked({".common .global .u32 v[3];", ".common .global .u32 v[4];"}), "v[4]") == 1);
    REQUIRE(linked({".common .global .u32 v[3] = {1,2,3};", ".common .global .u32 v[4];"}).starts_with("error"));
    REQUIRE(linked({".visible .global .u32 v;", ".visible .global .u32 v;"}) ==
            "error: multiple definition of 'v' in '1', first defined in '0'");
    REQUIRE(linked({".visible .entry k () { ret; }", ".visible .entry k () { ret; }"}).starts_with("error: multiple"));
    REQUIRE(linked({".visible .func k () { ret; }", ".visible .global .u32 k;"}).starts_with("error: 'k' is"));
    const std::string weak = ".weak .func f () { trap; }", strong = ".visible .func f () { ret; }";
    REQUIRE(count(linked({weak, strong}), "trap") == 0);
    REQUIRE(count(linked({strong, weak}), "trap") == 0);
    REQUIRE(count(linked({weak, weak}), "trap") == 1);
    // A kernel and the shared memory of a template that two files use.
    const std::string both = ".weak .shared .u32 room[32];\n.weak .entry k () { mov.u32 %tid.x, room; ret; }";
    REQUIRE(count(linked({both, both}), ".weak .entry  k()") == 1);
    REQUIRE(count(linked({both, both}), "room[32];") == 1);
}

TEST_CASE("what is declared must be defined, or be the device's", "[ptx]") {
    const std::string calls = " .visible .entry k () { call f, (); ret; }";
    REQUIRE(linked({".extern .func f ();" + calls, ".extern .global .u32 v;"}) ==
            "error: undefined reference to 'f' in '0'\nundefined reference to 'v' in '1'");
    // A function that nobody names is not missed; naming it is enough, by its address or as a target.
    REQUIRE(!linked({".extern .func f ();", ".visible .global .u32 v;"}).starts_with("error"));
    REQUIRE(linked({".extern .func f (); .visible .global .u64 v = f;"}) == "error: undefined reference to 'f' in '0'");
    REQUIRE(
        linked(
            {".extern .func f (); .visible .entry k () { .reg .u64 %p; t: .calltargets f; call %p, (), t; ret; }"}) ==
        "error: undefined reference to 'f' in '0'");
    linked({".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);", ""});
    REQUIRE(count(linked({".extern .shared .align 4 .b8 s[];", ".extern .shared .align 16 .b8 s[];"}), ".align 16") ==
            1);
    REQUIRE(linked({".extern .func f (.param .b32 a);", ".visible .func f (.param .b64 a) { ret; }"})
                .starts_with("error: prototype doesn't match for 'f' in '1', first defined in '0'"));
    REQUIRE(linked({".visible .global .u32 v;", ".extern .global .u32 v[2];"}) ==
            "error: size doesn't match for 'v' in '1', first specified in '0'");
    const std::string text =
        linked({".extern .func f (); .visible .entry k () { call f, (); ret; }", ".visible .func f () { ret; }"});
    REQUIRE(text.find(".visible .func  f()") < text.find(".entry"));
    REQUIRE(count(text, ".extern") == 0);
}

TEST_CASE("the newest version and target, and source files with numbers of their own", "[ptx]") {
    const std::string text =
        linked({".version 8.0\n.target sm_75\n.address_size 64\n.file 1 \"a.cu\"\n",
                ".version 8.10\n.target sm_80\n.address_size 64\n.file 1 \"b.cu\"\n"
                ".visible .entry k () {\n.loc 1 7 3, function_name $info, inlined_at 1 9 1\nret;\n}\n"
                ".section .debug_str\n{\n$info:\n.b8 1\n}\n"});
    REQUIRE(text.starts_with(".version 8.10\n.target sm_80\n"));
    REQUIRE(count(text, ".file 3 \"b.cu\"") == 1);
    REQUIRE(count(text, ".loc 3 7 3\n") == 1);
    REQUIRE(count(text, "debug_str") == 0);
    REQUIRE(linked({}).starts_with("error"));
}
