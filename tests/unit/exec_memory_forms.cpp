// SPDX-License-Identifier: MIT
// Loads, stores, atomics and reductions in every form: each space, type, width, vector, cache operator, scope and
// memory order, against what the PTX ISA (sections 9.7.9 and 9.7.13) says they do.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "tests/unit/catch.h"
#include "tests/unit/exec_harness.h"

using namespace exec_test;

namespace {

constexpr unsigned threads = 64, cell = 64;  // bytes that belong to each thread

using Cell = std::array<std::uint8_t, cell>;

template <class T>
T part(const Cell& c, std::size_t at) {
    T v;
    std::memcpy(&v, c.data() + at, sizeof v);
    return v;
}
template <class T>
void part(Cell& c, std::size_t at, T v) {
    std::memcpy(c.data() + at, &v, sizeof v);
}

std::uint32_t bits_of(float v) {
    std::uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
}
// Of a number that half precision holds exactly.
std::uint16_t half_of(float v) {
    const std::uint32_t bits = bits_of(v);
    if (v == 0) return static_cast<std::uint16_t>(bits >> 16);
    return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 0x3ff));
}

// One form: instructions that work on the thread's cell, whose address in `space` is in %p, and the same on the host.
// The operands come from, and the results go to, other bytes of the cell, so that only its final bytes are compared.
struct Form {
    std::string space, text;
    std::function<void(Cell&)> host;
    std::function<void(Cell&)> prepare = {};  // makes other operands of random bytes
};

// A cell in the form's space is filled from global memory, worked on, and written back.
std::string kernel(const Form& form, std::size_t n) {
    std::string p = ".visible .entry form_" + std::to_string(n) + "(.param .u64 cells)\n{\n";
    p += ".reg .b16 %h<10>;\n.reg .b32 %r<20>;\n.reg .b64 %d<20>;\n.reg .f32 %f<20>;\n.reg .f64 %e<10>;\n.reg .b64 %p, "
         "%g, %i;\n"
         ".reg .b32 %t;\n.reg .pred %q;\n";
    p += ".shared .align 64 .b8 block[" + std::to_string(threads * cell) + "];\n.local .align 64 .b8 own[64];\n";
    p += "ld.param.u64 %g, [cells];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %i, %t, 64;\nadd.u64 %g, %g, %i;\n";
    const bool elsewhere = form.space == ".shared" || form.space == ".local";
    if (form.space == ".shared") p += "mov.u64 %p, block;\nadd.u64 %p, %p, %i;\n";
    if (form.space == ".local") p += "mov.u64 %p, own;\n";
    if (!elsewhere) p += "mov.u64 %p, %g;\n";
    const auto copy = [&](const std::string& from, const std::string& a, const std::string& to, const std::string& b) {
        for (int at = 0; at < 64; at += 8)
            p += "ld" + from + ".u64 %d0, [" + a + "+" + std::to_string(at) + "];\nst" + to + ".u64 [" + b + "+" +
                 std::to_string(at) + "], %d0;\n";
    };
    if (elsewhere) copy(".global", "%g", form.space, "%p");
    p += form.text + "\n";
    if (elsewhere) copy(form.space, "%p", ".global", "%g");
    return p + "ret;\n}\n";
}

void check(const std::vector<Form>& forms, const std::string& target) {
    std::string ptx = ".version 8.6\n.target " + target + "\n.address_size 64\n";
    for (std::size_t n = 0; n < forms.size(); ++n) ptx += kernel(forms[n], n);
    Device d;
    d.load(ptx);
    std::mt19937_64 random(11);
    for (std::size_t n = 0; n < forms.size(); ++n) {
        std::vector<Cell> cells(threads);
        for (unsigned t = 0; t < threads; ++t)
            for (std::size_t at = 0; at < cell; at += 8) {
                // Edge values, small numbers and any bits: of every operand width.
                static constexpr std::uint64_t edges[] = {0,
                                                          ~0ull,
                                                          0x8000000080000000,
                                                          0x7fffffff7fffffff,
                                                          0x3f8000003f800000,
                                                          0x3ff0000000000000,
                                                          0x3c003c003c003c00,
                                                          1,
                                                          0x0000000100000001};
                const std::uint64_t r = random();
                part<std::uint64_t>(cells[t], at,
                                    r % 3 == 0   ? edges[r / 3 % 9]
                                    : r % 3 == 1 ? random() % 16
                                                 : random());
            }
        if (forms[n].prepare)
            for (Cell& c : cells) forms[n].prepare(c);
        std::vector<Cell> wanted = cells;
        for (Cell& c : wanted) forms[n].host(c);
        const std::uint64_t at = d.memory.put(cells);
        const Failure f = d.run("form_" + std::to_string(n), {1}, {threads}, at);
        INFO(forms[n].text << "\n" << f.message);
        CHECK(f.fault == Fault::None);
        const auto got = d.memory.get<Cell>(at, threads);
        unsigned wrong = 0;
        for (unsigned t = 0; t < threads; ++t) wrong += got[t] != wanted[t];
        CHECK(wrong == 0);
    }
}

const std::vector<std::string> spaces = {".global", ".shared", ".local"};

// The result of an atomic goes to bytes 48 on, its operands come from bytes 16 and 32.
template <class T>
void atomics(std::vector<Form>& forms, const std::string& type, const std::string& load, const std::string& reg,
             const std::vector<std::pair<std::string, std::function<T(T, T, T)>>>& operations,
             const std::function<void(Cell&)>& prepare = {}) {
    for (const auto& [operation, host] : operations) {
        const bool cas = operation == "cas";
        const auto form = [&](const std::string& space, const std::string& generic, const std::string& order,
                              bool result) {
            std::string text = "ld" + space + "." + load + " %" + reg + "1, [%p+16];\nld" + space + "." + load + " %" +
                               reg + "2, [%p+32];\n";
            std::string address = "%p";
            if (!generic.empty()) {
                text += "cvta" + space + ".u64 %d9, %p;\n";
                address = "%d9";
            }
            const std::string operands = "[" + address + "], %" + reg + "1" + (cas ? ", %" + reg + "2" : "");
            const std::string modifiers = order + (generic.empty() ? space : "") + "." + operation +
                                          (type.starts_with("f16") || type.starts_with("bf16") ? ".noftz." : ".") +
                                          type;
            text += result ? "atom" + modifiers + " %" + reg + "3, " + operands + ";\nst" + space + "." + load +
                                 " [%p+48], %" + reg + "3;\n"
                           : "red" + modifiers + " " + operands + ";\n";
            forms.push_back({space, text,
                             [host, result](Cell& c) {
                                 const T old = part<T>(c, 0);
                                 part<T>(c, 0, host(old, part<T>(c, 16), part<T>(c, 32)));
                                 if (result) part<T>(c, 48, old);
                             },
                             prepare});
        };
        for (const std::string space : {".global", ".shared"})
            for (const std::string generic : {"", "generic"}) {
                for (const std::string order : {"", ".gpu", ".relaxed.cta", ".acquire.gpu", ".release.sys",
                                                ".acq_rel.gpu", ".relaxed.sys", ".relaxed.cluster"})
                    form(space, generic, order, true);
                if (!cas && operation != "exch")
                    for (const std::string order : {"", ".sys", ".relaxed.gpu", ".release.cta"})
                        form(space, generic, order, false);
            }
    }
}

template <class T>
T wrapped_increment(T old, T limit, T) {
    return old >= limit ? 0 : old + 1;
}
template <class T>
T wrapped_decrement(T old, T limit, T) {
    return old == 0 || old > limit ? limit : old - 1;
}

}  // namespace

TEST_CASE("atomics and reductions in every form", "[exec]") {
    std::vector<Form> forms;
    const auto unsigned_of = [&]<class T>(T, const std::string& width) {
        atomics<T>(forms, "u" + width, "u" + width, width == "32" ? "r" : "d",
                   {{"add", [](T a, T b, T) { return static_cast<T>(a + b); }},
                    {"min", [](T a, T b, T) { return std::min(a, b); }},
                    {"max", [](T a, T b, T) { return std::max(a, b); }}});
        atomics<T>(forms, "b" + width, "b" + width, width == "32" ? "r" : "d",
                   {{"and", [](T a, T b, T) { return static_cast<T>(a & b); }},
                    {"or", [](T a, T b, T) { return static_cast<T>(a | b); }},
                    {"xor", [](T a, T b, T) { return static_cast<T>(a ^ b); }},
                    {"exch", [](T, T b, T) { return b; }},
                    {"cas", [](T a, T b, T c) { return a == b ? c : a; }}});
    };
    unsigned_of(std::uint32_t{}, "32");
    unsigned_of(std::uint64_t{}, "64");
    atomics<std::uint16_t>(forms, "b16", "b16", "h",
                           {{"cas", [](std::uint16_t a, std::uint16_t b, std::uint16_t c) { return a == b ? c : a; }}});
    atomics<std::uint32_t>(forms, "u32", "u32", "r",
                           {{"inc", wrapped_increment<std::uint32_t>}, {"dec", wrapped_decrement<std::uint32_t>}});
    atomics<std::int32_t>(
        forms, "s32", "s32", "r",
        {{"add",
          [](std::int32_t a, std::int32_t b, std::int32_t) {
              return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
          }},
         {"min", [](std::int32_t a, std::int32_t b, std::int32_t) { return std::min(a, b); }},
         {"max", [](std::int32_t a, std::int32_t b, std::int32_t) { return std::max(a, b); }}});
    atomics<std::int64_t>(forms, "s64", "s64", "d",
                          {{"min", [](std::int64_t a, std::int64_t b, std::int64_t) { return std::min(a, b); }},
                           {"max", [](std::int64_t a, std::int64_t b, std::int64_t) { return std::max(a, b); }}});
    // Sums of halves and quarters, which every format holds exactly, so that the order of roundings is no question.
    const auto quarters = [](std::uint8_t from) { return static_cast<float>(from % 64) / 4 - 8; };
    atomics<float>(forms, "f32", "f32", "f", {{"add", [](float a, float b, float) { return a + b; }}},
                   [quarters](Cell& c) {
                       for (const std::size_t at : {0u, 16u}) part<float>(c, at, quarters(c[at]));
                   });
    atomics<double>(forms, "f64", "f64", "e", {{"add", [](double a, double b, double) { return a + b; }}},
                    [quarters](Cell& c) {
                        for (const std::size_t at : {0u, 16u}) part<double>(c, at, quarters(c[at]));
                    });
    for (const bool brain : {false, true}) {
        const auto narrow = [brain](float v) -> std::uint16_t {
            return brain ? static_cast<std::uint16_t>(bits_of(v) >> 16) : half_of(v);
        };
        const auto prepare = [=](Cell& c) {
            for (const std::size_t at : {0u, 2u, 16u, 18u}) part<std::uint16_t>(c, at, narrow(quarters(c[at])));
        };
        const auto sum = [=](std::uint16_t a, std::uint16_t b) {
            const auto wide = [=](std::uint16_t h) {
                for (int q = -256; q < 256; ++q)
                    if (narrow(static_cast<float>(q) / 4) == h) return static_cast<float>(q) / 4;
                return 0.0f;  // -0 is not among them
            };
            return narrow(wide(a) + wide(b));
        };
        atomics<std::uint16_t>(forms, brain ? "bf16" : "f16", "b16", "h",
                               {{"add", [=](std::uint16_t a, std::uint16_t b, std::uint16_t) { return sum(a, b); }}},
                               prepare);
        atomics<std::uint32_t>(
            forms, brain ? "bf16x2" : "f16x2", "b32", "r",
            {{"add",
              [=](std::uint32_t a, std::uint32_t b, std::uint32_t) {
                  const auto low = static_cast<std::uint16_t>(a), with = static_cast<std::uint16_t>(b);
                  const auto high = static_cast<std::uint16_t>(a >> 16);
                  return std::uint32_t{sum(high, static_cast<std::uint16_t>(b >> 16))} << 16 | sum(low, with);
              }}},
            prepare);
    }
    check(forms, "sm_90");
    CHECK(forms.size() > 900);
}

TEST_CASE("atomics on vectors", "[exec]") {
    std::vector<Form> forms;
    const auto prepare = [](Cell& c) {
        for (std::size_t at = 0; at < cell; at += 4) part<float>(c, at, static_cast<float>(c[at] % 64) / 4 - 8);
    };
    for (const unsigned count : {2u, 4u})
        for (const bool result : {false, true}) {
            std::string from, to;
            for (unsigned n = 0; n < count; ++n) {
                from += (n == 0 ? "%f" : ", %f") + std::to_string(n);
                to += (n == 0 ? "%f" : ", %f") + std::to_string(8 + n);
            }
            const std::string v = ".v" + std::to_string(count) + ".f32 ";
            forms.push_back({".global",
                             "ld.global" + v + "{" + from + "}, [%p+16];\n" +
                                 (result ? "atom.global.add" + v + "{" + to + "}, [%p], {" + from + "};\nst.global" +
                                               v + "[%p+48], {" + to + "};"
                                         : "red.relaxed.gpu.global.add" + v + "[%p], {" + from + "};"),
                             [count, result](Cell& c) {
                                 for (std::size_t at = 0; at < count * 4; at += 4) {
                                     const auto old = part<float>(c, at);
                                     part<float>(c, at, old + part<float>(c, 16 + at));
                                     if (result) part<float>(c, 48 + at, old);
                                 }
                             },
                             prepare});
        }
    check(forms, "sm_90");

    // A vector is aligned to all of its bytes.
    Device d;
    d.load(".version 8.6\n.target sm_90\n.address_size 64\n" +
           kernel({".global", "mov.f32 %f0, 0f3F800000;\nred.global.add.v4.f32 [%p+8], {%f0, %f0, %f0, %f0};", {}}, 0));
    const std::uint64_t at = d.memory.reserve(threads * cell);
    CHECK(d.run("form_0", {1}, {threads}, at).fault == Fault::MisalignedAddress);
}

TEST_CASE("loads and stores in every form", "[exec]") {
    struct Type {
        std::string name, reg;
        std::size_t bytes;
    };
    const std::vector<Type> types = {{"b8", "h", 1},  {"u8", "h", 1},  {"s8", "h", 1},  {"b16", "h", 2},
                                     {"u16", "h", 2}, {"s16", "h", 2}, {"b32", "r", 4}, {"u32", "r", 4},
                                     {"s32", "r", 4}, {"f32", "f", 4}, {"b64", "d", 8}, {"u64", "d", 8},
                                     {"s64", "d", 8}, {"f64", "e", 8}};
    std::vector<Form> forms;
    const auto list = [](const std::string& reg, unsigned count) {
        std::string s;
        for (unsigned n = 0; n < count; ++n) s += (n == 0 ? "" : ", ") + ("%" + reg + std::to_string(n + 1));
        return count == 1 ? s : "{" + s + "}";
    };
    for (const std::string& space : spaces)
        for (const Type& type : types)
            for (const unsigned count : {1u, 2u, 4u}) {
                const std::size_t bytes = type.bytes * count;
                if (bytes > 16) continue;
                const std::string vector = count == 1 ? "" : ".v" + std::to_string(count);
                const auto move = [bytes](Cell& c) { std::copy_n(c.begin(), bytes, c.begin() + 32); };
                const auto add = [&](const std::string& load, const std::string& store) {
                    const std::string registers = list(type.reg, count), tail = vector + "." + type.name + " ";
                    forms.push_back(
                        {space,
                         "ld" + load + tail + registers + ", [%p];\nst" + store + tail + "[%p+32], " + registers + ";",
                         move});
                    // The same by the generic address.
                    const auto plain = [&](std::string m) {
                        if (const auto at = m.find(space); at != std::string::npos) m.erase(at, space.size());
                        return m;
                    };
                    forms.push_back({space,
                                     "cvta" + space + ".u64 %d9, %p;\nld" + plain(load) + tail + registers +
                                         ", [%d9];\nst" + plain(store) + tail + "[%d9+32], " + registers + ";",
                                     move});
                };
                add(space, space);
                add(".volatile" + space, ".volatile" + space);
                if (space != ".local") {
                    add(".relaxed.gpu" + space, ".relaxed.sys" + space);
                    add(".acquire.cta" + space, ".release.cluster" + space);
                    add(".weak" + space, ".weak" + space);
                }
                if (space == ".global")
                    for (const auto& [load, store] :
                         {std::pair{".ca", ".wb"}, {".cg", ".cg"}, {".cs", ".cs"}, {".lu", ".wt"}, {".cv", ".wt"}})
                        add(space + load, space + store);
            }
    // Narrow values are extended into wide registers, by their sign where the type has one.
    for (const std::string& space : spaces) {
        const auto extend = [&]<class From>(From, const std::string& type) {
            forms.push_back(
                {space, "ld" + space + "." + type + " %r1, [%p];\nst" + space + ".u32 [%p+32], %r1;",
                 [](Cell& c) { part<std::uint32_t>(c, 32, static_cast<std::uint32_t>(part<From>(c, 0))); }});
            forms.push_back(
                {space, "ld" + space + "." + type + " %d1, [%p];\nst" + space + ".u64 [%p+32], %d1;",
                 [](Cell& c) { part<std::uint64_t>(c, 32, static_cast<std::uint64_t>(part<From>(c, 0))); }});
        };
        extend(std::uint8_t{}, "u8");
        extend(std::int8_t{}, "s8");
        extend(std::uint16_t{}, "u16");
        extend(std::int16_t{}, "s16");
    }
    // Read-only and prefetched loads of global memory.
    for (const std::string modifiers :
         {".global.nc", ".global.ca.nc", ".global.cg.nc", ".global.cs.nc", ".global.L1::evict_last",
          ".global.nc.L1::no_allocate", ".global.L2::64B", ".global.L2::256B", ".global.nc.L1::evict_first.L2::128B"})
        for (const unsigned count : {1u, 2u, 4u})
            forms.push_back({".global",
                             "ld" + modifiers + (count == 1 ? "" : ".v" + std::to_string(count)) + ".u32 " +
                                 list("r", count) + ", [%p];\nst.global" +
                                 (count == 1 ? "" : ".v" + std::to_string(count)) + ".u32 [%p+32], " +
                                 list("r", count) + ";",
                             [count](Cell& c) { std::copy_n(c.begin(), count * 4, c.begin() + 32); }});
    forms.push_back({".global", "ldu.global.v2.u64 {%d1, %d2}, [%p];\nst.global.v2.u64 [%p+32], {%d1, %d2};",
                     [](Cell& c) { std::copy_n(c.begin(), 16, c.begin() + 32); }});
    forms.push_back({".global",
                     "prefetch.global.L1 [%p];\nprefetchu.L1 [%p];\nprefetch.global.L2 [%p];\nprefetch.L2 [%p];",
                     [](Cell&) {}});
    check(forms, "sm_90");
    CHECK(forms.size() > 500);
}
