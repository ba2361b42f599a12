// SPDX-License-Identifier: MIT
// Instruction forms that no GPU has been asked about (tests/ptx/forms.expected has those): the expected bytes are
// computed here, by code of its own, from what the PTX ISA says about each. Operands are those of forms_input.h.
#include <cfenv>
#include <cmath>
#include <functional>

#include "tests/ptx/forms_input.h"
#include "tests/unit/catch.h"
#include "tests/unit/exec_harness.h"

using namespace exec_test;

namespace {

using Cell = std::uint64_t;
using Expected = std::function<Cell(Cell, Cell, Cell)>;

// out[i] = text(a[i], b[i], c[i]), where the registers have `bits` and the result `result` bits.
std::string kernel(const std::string& text, unsigned bits, unsigned result) {
    const std::string b = ".b" + std::to_string(bits), d = ".b" + std::to_string(result);
    std::string ptx =
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry form(.param .u64 pa, .param .u64 pb, .param "
        ".u64 pc, .param .u64 po)\n{\n.reg .pred %p, %q, %r;\n.reg .b128 %w, %y, %z;\n.reg .b16 %h<4>;\n.reg .b8 "
        "%n<4>;\n"
        ".reg .b32 %t, %u, %v, %s;\n.reg .b64 %x, %i, %o;\n";
    ptx += ".reg " + d + " %d;\n.reg " + b + " %a, %b, %c;\n";
    ptx +=
        "mov.u32 %t, %tid.x; mov.u32 %u, %ctaid.x; mov.u32 %v, %ntid.x; mad.lo.u32 %t, %u, %v, %t;\n"
        "mul.wide.u32 %i, %t, 8;\n";
    for (const char* r : {"a", "b", "c"})
        ptx += "ld.param.u64 %x, [p" + std::string(r) + "]; add.u64 %x, %x, %i; ld.global" + b + " %" + r + ", [%x];\n";
    return ptx + "ld.param.u64 %o, [po]; add.u64 %o, %o, %i;\n" + text + "\nst.global" + d + " [%o], %d;\nret;\n}\n";
}

void check(const std::string& text, const std::string& domain, unsigned bits, unsigned result, const Expected& want) {
    INFO(text);
    Device d;
    d.load(kernel(text, bits, result));
    std::vector<Cell> in[3];
    std::uint64_t at[4];
    for (unsigned k = 0; k < 3; k++) at[k] = d.memory.put(in[k] = forms::input(domain, k));
    at[3] = d.memory.put(std::vector<Cell>(forms::cells));
    const Failure f = d.run("form", {forms::cells / 128}, {128}, at[0], at[1], at[2], at[3]);
    INFO(f.message);
    REQUIRE(f.fault == Fault::None);
    const auto got = d.memory.get<Cell>(at[3], forms::cells);
    const Cell mask = result == 64 ? ~Cell{0} : (Cell{1} << result) - 1;
    unsigned wrong = 0;
    for (unsigned n = 0; n < forms::cells; n++) {
        const Cell expected = want(in[0][n], in[1][n], in[2][n]) & mask;
        if (got[n] == expected) continue;
        if (wrong++ == 0)
            UNSCOPED_INFO(std::hex << "a=" << in[0][n] << " b=" << in[1][n] << " c=" << in[2][n] << " expected "
                                   << expected << ", got " << got[n]);
    }
    CHECK(wrong == 0);
}

float number(Cell bits) {
    const auto low = static_cast<std::uint32_t>(bits);
    float v = 0;
    std::memcpy(&v, &low, 4);
    return v;
}
Cell bits_of(float v) {
    if (std::isnan(v)) return 0x7fffffff;
    std::uint32_t b = 0;
    std::memcpy(&b, &v, 4);
    return b;
}
float flushed(float v, bool on) { return on && std::fabs(v) < 0x1p-126f ? std::copysign(0.0f, v) : v; }

// Half precision by its definition.
float half(Cell h) {
    const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 1023);
    const float sign = (h & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
    return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                 : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}
float bfloat(Cell h) { return number((h & 0xffff) << 16); }

bool holds(const std::string& c, float a, float b) {
    const bool nan = std::isnan(a) || std::isnan(b);
    if (c == "num") return !nan;
    if (c == "nan") return nan;
    const bool unordered = c.size() == 3;
    if (nan) return unordered;
    const std::string plain = c.substr(0, 2);
    return plain == "eq"   ? a == b
           : plain == "ne" ? a != b
           : plain == "lt" ? a < b
           : plain == "le" ? a <= b
           : plain == "gt" ? a > b
                           : a >= b;
}

}  // namespace

TEST_CASE("pairs of single precision", "[exec]") {
    static constexpr std::pair<const char*, int> modes[] = {
        {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
    for (const auto& [name, mode] : modes)
        for (const bool flush : {false, true})
            for (const std::string op : {"add", "sub", "mul", "fma"}) {
                const int rounding = mode;
                // The result of rounding in two steps would differ, so the host rounds once, in the same direction.
                const auto one = [=](float x, float y, float z) {
                    volatile float a = flushed(x, flush), b = flushed(y, flush), c = flushed(z, flush);
                    const int before = std::fegetround();
                    std::fesetround(rounding);
                    volatile float r = 0;
                    if (op == "add") r = a + b;
                    if (op == "sub") r = a - b;
                    if (op == "mul") r = a * b;
                    if (op == "fma") r = std::fma(a, b, c);
                    std::fesetround(before);
                    return bits_of(flushed(r, flush));
                };
                const bool three = op == "fma";
                const std::string text =
                    op + "." + name + (flush ? ".ftz" : "") + ".f32x2 %d, %a, %b" + (three ? ", %c;" : ";");
                // Between the largest subnormal and the smallest normal number, what is flushed depends on the size
                // before rounding: those results are left to the recorded scalar forms.
                if (flush && op != "add" && op != "sub") continue;
                const auto pair = [=](Cell a, Cell b, Cell c) {
                    return one(number(a), number(b), number(c)) | one(number(a >> 32), number(b >> 32), number(c >> 32))
                                                                      << 32;
                };
                // Both halves take values of the table of special ones: the low one is f32's, the high one f64's sign,
                // exponent and so on.
                check(text, "f32", 64, 64, pair);
                check(text, "f64", 64, 64, pair);
            }
}

TEST_CASE("pairs of 16-bit integers", "[exec]") {
    const auto pair = [](auto f) {
        return [f](Cell a, Cell b, Cell) {
            return (Cell{static_cast<std::uint16_t>(f(a & 0xffff, b & 0xffff))}) |
                   Cell{static_cast<std::uint16_t>(f(a >> 16 & 0xffff, b >> 16 & 0xffff))} << 16;
        };
    };
    const auto sign = [](Cell v) { return static_cast<int>(static_cast<std::int16_t>(v)); };
    check("add.u16x2 %d, %a, %b;", "int", 32, 32, pair([](Cell a, Cell b) { return a + b; }));
    check("add.s16x2 %d, %a, %b;", "int", 32, 32, pair([](Cell a, Cell b) { return a + b; }));
    check("min.u16x2 %d, %a, %b;", "int", 32, 32, pair([](Cell a, Cell b) { return a < b ? a : b; }));
    check("max.u16x2 %d, %a, %b;", "int", 32, 32, pair([](Cell a, Cell b) { return a > b ? a : b; }));
    check("min.s16x2 %d, %a, %b;", "f16", 32, 32, pair([=](Cell a, Cell b) { return sign(a) < sign(b) ? a : b; }));
    check("max.s16x2 %d, %a, %b;", "f16", 32, 32, pair([=](Cell a, Cell b) { return sign(a) > sign(b) ? a : b; }));
    const auto relu = [=](Cell v) { return sign(v) < 0 ? 0 : v; };
    check("min.relu.s16x2 %d, %a, %b;", "f16", 32, 32,
          pair([=](Cell a, Cell b) { return relu(sign(a) < sign(b) ? a : b); }));
    check("max.relu.s16x2 %d, %a, %b;", "f16", 32, 32,
          pair([=](Cell a, Cell b) { return relu(sign(a) > sign(b) ? a : b); }));
}

TEST_CASE("comparisons of half precision pairs", "[exec]") {
    for (const bool wide : {false, true}) {
        const std::string type = wide ? "bf16x2" : "f16x2", domain = wide ? "bf16" : "f16";
        const auto load = [=](Cell h) { return wide ? bfloat(h) : half(h & 0xffff); };
        for (const std::string c :
             {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}) {
            const auto answers = [=](Cell a, Cell b, Cell yes) {
                return (holds(c, load(a), load(b)) ? yes : 0) |
                       (holds(c, load(a >> 16), load(b >> 16)) ? yes << 16 : 0);
            };
            const Cell one = wide ? 0x3f80 : 0x3c00;
            check("set." + c + "." + type + "." + type + " %d, %a, %b;", domain, 32, 32,
                  [=](Cell a, Cell b, Cell) { return answers(a, b, one); });
            check("set." + c + ".u32." + type + " %d, %a, %b;", domain, 32, 32,
                  [=](Cell a, Cell b, Cell) { return answers(a, b, 0xffff); });
            check("setp." + c + "." + type +
                      " %p|%q, %a, %b; selp.b32 %d, 1, 0, %p; selp.b32 %s, 2, 0, %q; or.b32 %d, %d, %s;",
                  domain, 32, 32, [=](Cell a, Cell b, Cell) {
                      return Cell{holds(c, load(a), load(b))} | Cell{holds(c, load(a >> 16), load(b >> 16))} << 1;
                  });
        }
        check("setp.gt.u32 %r, %c, 1000; set.lt.and.u32." + type + " %d, %a, %b, %r;", domain, 32, 32,
              [=](Cell a, Cell b, Cell c) {
                  if ((c & 0xffffffff) <= 1000) return Cell{0};
                  return (load(a) < load(b) ? Cell{0xffff} : 0) |
                         (load(a >> 16) < load(b >> 16) ? Cell{0xffff0000} : 0);
              });
    }
}

TEST_CASE("three operands of min and max", "[exec]") {
    for (const bool nan : {false, true})
        for (const bool less : {false, true})
            check(std::string(less ? "min" : "max") + (nan ? ".NaN" : "") + ".f32 %d, %a, %b, %c;", "f32", 32, 32,
                  [=](Cell a, Cell b, Cell c) {
                      float best = NAN;
                      bool any = false;
                      for (const float v : {number(a), number(b), number(c)}) {
                          if (std::isnan(v)) {
                              if (nan) return Cell{0x7fffffff};
                              continue;
                          }
                          const bool smaller = v < best || (v == best && std::signbit(v) && !std::signbit(best));
                          const bool larger = v > best || (v == best && !std::signbit(v) && std::signbit(best));
                          if (!any || (less ? smaller : larger)) best = v;
                          any = true;
                      }
                      return bits_of(best);
                  });
}

TEST_CASE("the n-th set bit", "[exec]") {
    check("and.b32 %b, %b, 31; bfe.s32 %s, %c, 0, 5; fns.b32 %d, %a, %b, %s;", "int", 32, 32,
          [](Cell a, Cell b, Cell c) {
              int offset = static_cast<int>(c & 31);
              if (offset >= 16) offset -= 32;
              const int base = static_cast<int>(b & 31);
              if (offset == 0) return (a >> base & 1) != 0 ? Cell(base) : Cell{0xffffffff};
              int left = std::abs(offset);
              for (int at = base; at >= 0 && at < 32; at += offset < 0 ? -1 : 1)
                  if ((a >> at & 1) != 0 && --left == 0) return Cell(at);
              return Cell{0xffffffff};
          });
}

TEST_CASE("parts of one byte and of 128 bits", "[exec]") {
    check("mov.b32 {%h0, %h1}, %a; mov.b16 {%n0, %n1}, %h0; mov.b16 %h2, {%n1, %n0}; mov.b32 %d, {%h2, %h1};", "int",
          32, 32, [](Cell a, Cell, Cell) { return (a & 0xffff0000) | (a & 255) << 8 | (a >> 8 & 255); });
    check("mov.b128 %w, {%a, %b}; mov.b128 %y, %w; mov.b128 {%x, %d}, %y; xor.b64 %d, %d, %x;", "int", 64, 64,
          [](Cell a, Cell b, Cell) { return a ^ b; });
}

TEST_CASE("128-bit memory", "[exec]") {
    // A line of three cells of 16 bytes for each thread; shared memory first, then global.
    Device d;
    d.load(R"(.version 8.4
.target sm_90
.address_size 64
.visible .entry wide(.param .u64 po)
{
.reg .pred %p;
.reg .b128 %w<8>;
.reg .b64 %x<16>;
.reg .b32 %r<4>;
.shared .align 16 .b8 box[16];
ld.param.u64 %x0, [po];
mov.u64 %x1, 0x1111222233334444;
mov.u64 %x2, 0x5555666677778888;
mov.b128 %w0, {%x1, %x2};
st.shared.b128 [box], %w0;
ld.shared.b128 %w1, [box];
st.global.b128 [%x0], %w1;
mov.b128 %w2, {%x2, %x1};
atom.global.exch.b128 %w3, [%x0], %w2;
st.global.b128 [%x0+16], %w3;
atom.global.cas.b128 %w4, [%x0], %w0, %w1;
atom.global.cas.b128 %w5, [%x0], %w2, %w0;
atom.global.cas.b128 %w6, [%x0], %w2, %w1;
st.global.b128 [%x0+32], %w4;
st.global.b128 [%x0+48], %w5;
st.global.b128 [%x0+64], %w6;
ret;
}
.visible .entry misaligned(.param .u64 po)
{
.reg .b128 %w<8>;
.reg .b64 %x<16>;
ld.param.u64 %x0, [po];
ld.global.b128 %w1, [%x0+8];
ret;
}
)");
    const auto at = d.memory.put(std::vector<Cell>(10));
    const Failure f = d.run("wide", {1}, {1}, at);
    INFO(f.message);
    REQUIRE(f.fault == Fault::None);
    const Cell a = 0x1111222233334444, b = 0x5555666677778888;
    // Stored; exchanged for it turned around; compared in vain; swapped back; compared in vain.
    CHECK(d.memory.get<Cell>(at, 10) == std::vector<Cell>{a, b, a, b, b, a, b, a, a, b});
    CHECK(d.run("misaligned", {1}, {1}, at).fault == Fault::MisalignedAddress);
}

TEST_CASE("vectors of 256 bits and atomics on vectors", "[exec]") {
    Device d;
    d.load(R"(.version 8.8
.target sm_100
.address_size 64
.visible .entry move(.param .u64 pi, .param .u64 po)
{
.reg .b64 %x<8>;
.reg .f32 %f<8>;
.reg .b64 %y<4>;
ld.param.u64 %x0, [pi];
ld.param.u64 %x1, [po];
ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%x0];
st.global.v8.f32 [%x1], {%f7, %f6, %f5, %f4, %f3, %f2, %f1, %f0};
ld.global.v4.b64 {%y0, %y1, %y2, %y3}, [%x0+32];
st.global.v4.b64 [%x1+32], {%y3, %y2, %y1, %y0};
ret;
}
.visible .entry add(.param .u64 po, .param .u64 pr)
{
.reg .b64 %x<8>;
.reg .f32 %f<8>;
ld.param.u64 %x0, [po];
ld.param.u64 %x1, [pr];
mov.f32 %f0, 0f3F800000;
mov.f32 %f1, 0f40000000;
atom.global.add.v4.f32 {%f4, %f5, %f6, %f7}, [%x0], {%f0, %f1, %f0, %f1};
st.global.v4.f32 [%x1], {%f4, %f5, %f6, %f7};
red.global.add.v2.f32 [%x0+16], {%f1, %f0};
ret;
}
)");
    std::vector<float> in(16);
    for (int n = 0; n < 16; n++) in[n] = static_cast<float>(n);
    const auto from = d.memory.put(in), to = d.memory.put(std::vector<float>(16)),
               old = d.memory.put(std::vector<float>(4));
    REQUIRE(d.run("move", {1}, {1}, from, to).fault == Fault::None);
    CHECK(d.memory.get<float>(to, 16) == std::vector<float>{7, 6, 5, 4, 3, 2, 1, 0, 14, 15, 12, 13, 10, 11, 8, 9});
    CHECK(d.run("move", {1}, {1}, from + 16, to).fault == Fault::MisalignedAddress);
    REQUIRE(d.run("add", {1}, {1}, from, old).fault == Fault::None);
    CHECK(d.memory.get<float>(old, 4) == std::vector<float>{0, 1, 2, 3});
    CHECK(d.memory.get<float>(from, 7) == std::vector<float>{1, 3, 3, 5, 6, 6, 6});
    // An address that would do for each element alone.
    CHECK(d.run("add", {1}, {1}, from + 4, old).fault == Fault::MisalignedAddress);
}
