// SPDX-License-Identifier: MIT
// The approximate functions stay within the error bounds that the PTX ISA gives (sections 9.7.3 and 9.7.4), and give
// what its tables give for zeros, infinities, NaN and subnormal numbers.
#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/catch.h"
#include "tests/unit/exec_harness.h"

using namespace exec_test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float smallest = std::numeric_limits<float>::min();
constexpr float largest = std::numeric_limits<float>::max();

enum class Bound { Absolute, Relative, Ulps };

struct Function {
    const char* instruction;
    long double (*exact)(long double, long double);
    Bound bound;
    double limit;
    float from, to;  // of the first operand; the second, where there is one, is near 1
};

const Function functions[] = {
    {"rcp.approx.f32 %d, %a;", [](long double a, long double) { return 1 / a; }, Bound::Ulps, 1, -1e30f, 1e30f},
    {"sqrt.approx.f32 %d, %a;", [](long double a, long double) { return std::sqrt(a); }, Bound::Relative, 0x1p-23, 0,
     largest},
    {"rsqrt.approx.f32 %d, %a;", [](long double a, long double) { return 1 / std::sqrt(a); }, Bound::Relative, 0x1p-22,
     smallest, largest},
    {"sin.approx.f32 %d, %a;", [](long double a, long double) { return std::sin(a); }, Bound::Absolute, 0x1p-20,
     -3.14159f, 3.14159f},
    {"cos.approx.f32 %d, %a;", [](long double a, long double) { return std::cos(a); }, Bound::Absolute, 0x1p-20,
     -3.14159f, 3.14159f},
    {"lg2.approx.f32 %d, %a;", [](long double a, long double) { return std::log2(a); }, Bound::Absolute, 0x1p-22, 0.5f,
     2},
    {"lg2.approx.f32 %d, %a;", [](long double a, long double) { return std::log2(a); }, Bound::Relative, 0x1p-22, 2,
     largest},
    {"ex2.approx.f32 %d, %a;", [](long double a, long double) { return std::exp2(a); }, Bound::Ulps, 2, -140, 127},
    {"tanh.approx.f32 %d, %a;", [](long double a, long double) { return std::tanh(a); }, Bound::Relative, 0x1p-11, -20,
     20},
    {"div.approx.f32 %d, %a, %b;", [](long double a, long double b) { return a / b; }, Bound::Ulps, 2, -1e30f, 1e30f},
    {"div.full.f32 %d, %a, %b;", [](long double a, long double b) { return a / b; }, Bound::Ulps, 2, -1e30f, 1e30f},
};

struct Special {
    const char* instruction;
    float operand, result;
};

const Special specials[] = {
    {"rcp.approx.f32 %d, %a;", 0.0f, infinity},
    {"rcp.approx.f32 %d, %a;", -0.0f, -infinity},
    {"rcp.approx.f32 %d, %a;", -infinity, -0.0f},
    {"rcp.approx.f32 %d, %a;", nan, nan},
    {"rcp.approx.ftz.f32 %d, %a;", 0x1p-140f, infinity},
    {"rcp.approx.ftz.f32 %d, %a;", -0x1.8p126f, -0.0f},
    {"sqrt.approx.f32 %d, %a;", -0.0f, -0.0f},
    {"sqrt.approx.f32 %d, %a;", -1.0f, nan},
    {"sqrt.approx.f32 %d, %a;", infinity, infinity},
    {"sqrt.approx.ftz.f32 %d, %a;", -0x1p-140f, -0.0f},
    {"rsqrt.approx.f32 %d, %a;", 0.0f, infinity},
    {"rsqrt.approx.f32 %d, %a;", -0.0f, -infinity},
    {"rsqrt.approx.f32 %d, %a;", infinity, 0.0f},
    {"rsqrt.approx.f32 %d, %a;", -1.0f, nan},
    {"rsqrt.approx.ftz.f32 %d, %a;", 0x1p-140f, infinity},
    {"sin.approx.f32 %d, %a;", -0.0f, -0.0f},
    {"sin.approx.f32 %d, %a;", infinity, nan},
    {"sin.approx.ftz.f32 %d, %a;", 0x1p-140f, 0.0f},
    {"cos.approx.f32 %d, %a;", -0.0f, 1.0f},
    {"cos.approx.f32 %d, %a;", -infinity, nan},
    {"lg2.approx.f32 %d, %a;", 0.0f, -infinity},
    {"lg2.approx.f32 %d, %a;", -0.0f, -infinity},
    {"lg2.approx.f32 %d, %a;", -1.0f, nan},
    {"lg2.approx.f32 %d, %a;", 1.0f, 0.0f},
    {"lg2.approx.f32 %d, %a;", infinity, infinity},
    {"lg2.approx.ftz.f32 %d, %a;", 0x1p-140f, -infinity},
    {"ex2.approx.f32 %d, %a;", -infinity, 0.0f},
    {"ex2.approx.f32 %d, %a;", infinity, infinity},
    {"ex2.approx.f32 %d, %a;", 0x1p-140f, 1.0f},
    {"ex2.approx.ftz.f32 %d, %a;", -130.0f, 0.0f},
    {"tanh.approx.f32 %d, %a;", -infinity, -1.0f},
    {"tanh.approx.f32 %d, %a;", -0.0f, -0.0f},
    {"tanh.approx.f32 %d, %a;", nan, nan},
    {"div.approx.f32 %d, %a, 0f7E800001;", 3.0f, 0.0f},  // the first over 2^126
    {"div.approx.f32 %d, %a, 0f7E800001;", infinity, nan},
    {"div.full.f32 %d, %a, 0f00000000;", -1.0f, -infinity},
    {"div.full.ftz.f32 %d, 0f3F800000, %a;", 0x1p-140f, infinity},
};

std::vector<float> results(const std::string& instruction, const std::vector<float>& a, const std::vector<float>& b) {
    std::string ptx =
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 pa, .param .u64 pb,"
        " .param .u64 po)\n{\n.reg .f32 %a, %b, %d;\n.reg .b32 %t, %u, %v;\n.reg .b64 %i, %x;\n"
        "mov.u32 %t, %tid.x;\nmov.u32 %u, %ctaid.x;\nmov.u32 %v, %ntid.x;\nmad.lo.u32 %t, %u, %v, %t;\n"
        "mul.wide.u32 %i, %t, 4;\n";
    for (const std::string name : {"a", "b"})
        ptx += "ld.param.u64 %x, [p" + name + "];\nadd.u64 %x, %x, %i;\nld.global.f32 %" + name + ", [%x];\n";
    ptx += instruction + "\nld.param.u64 %x, [po];\nadd.u64 %x, %x, %i;\nst.global.f32 [%x], %d;\nret;\n}\n";
    Device d;
    d.load(ptx);
    const std::uint64_t at = d.memory.put(a), second = d.memory.put(b), out = d.memory.reserve(a.size() * 4);
    const Failure f = d.run("k", {static_cast<unsigned>(a.size() / 32)}, {32}, at, second, out);
    INFO(instruction << " " << f.message);
    REQUIRE(f.fault == Fault::None);
    return d.memory.get<float>(out, a.size());
}

// In units of the last place of the correctly rounded result.
double ulps(float got, long double exact) {
    const auto rounded = static_cast<float>(exact);
    if (std::isinf(rounded)) return got == rounded ? 0 : 1e9;
    const int exponent = rounded == 0 ? -126 : std::max(std::ilogb(rounded), -126);
    return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - 23));
}

}  // namespace

TEST_CASE("approximate functions stay within the bounds of the PTX ISA", "[exec]") {
    std::mt19937 random(7);
    for (const Function& function : functions) {
        std::vector<float> a(32768), b(32768);
        for (std::size_t n = 0; n < a.size(); ++n) {
            // Half of them evenly spread over the exponents, half over the range.
            const float spread = std::uniform_real_distribution<float>(function.from / 2, function.to / 2)(random) * 2;
            const auto bits = static_cast<std::uint32_t>(random());
            float any;
            std::memcpy(&any, &bits, 4);
            a[n] =
                n % 2 == 0 && any >= function.from && any <= function.to && std::fabs(any) >= smallest ? any : spread;
            b[n] = std::uniform_real_distribution<float>(0.25f, 4)(random);
        }
        const auto got = results(function.instruction, a, b);
        unsigned outside = 0;
        for (std::size_t n = 0; n < a.size(); ++n) {
            const long double exact = function.exact(a[n], b[n]);
            const double off = function.bound == Bound::Ulps ? ulps(got[n], exact)
                               : function.bound == Bound::Absolute
                                   ? static_cast<double>(std::fabs(got[n] - exact))
                                   : static_cast<double>(std::fabs((got[n] - exact) / exact));
            if (exact == 0 ? got[n] == 0 : off <= function.limit) continue;
            if (outside++ == 0)
                UNSCOPED_INFO(function.instruction << " a=" << a[n] << " b=" << b[n] << " gives " << got[n]
                                                   << ", exactly " << static_cast<double>(exact));
        }
        CHECK(outside == 0);
    }
}

TEST_CASE("approximate functions of special values", "[exec]") {
    for (const Special& special : specials) {
        const std::vector<float> a(32, special.operand);
        const float got = results(special.instruction, a, a)[31];
        INFO(special.instruction << " a=" << special.operand << " gives " << got << ", expected " << special.result);
        if (std::isnan(special.result))
            CHECK(std::isnan(got));
        else
            CHECK((got == special.result && std::signbit(got) == std::signbit(special.result)));
    }
}
