// SPDX-License-Identifier: MIT
// Whole kernels, as nvcc compiles them, against the same computation on the CPU. Each PTX file that HPE_TEST_PTX names
// (for several architectures, and unoptimised) runs all of them.
#include <cmath>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/unit/catch.h"
#include "tests/unit/exec_harness.h"

using namespace exec_test;

namespace {

std::vector<std::string> ptx_files() {
    const char* list = std::getenv("HPE_TEST_PTX");
    std::vector<std::string> files;
    std::istringstream words(list == nullptr ? "" : list);
    for (std::string file; std::getline(words, file, ':');) files.push_back(file);
    return files;
}

std::vector<float> numbers(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> range(-10, 10);
    std::vector<float> v(n);
    for (float& x : v) x = range(random);
    return v;
}

void ok(const Failure& f) {
    INFO(f.message);
    REQUIRE(f.fault == Fault::None);
}

template <class F>
void on_all(F f) {
    const auto files = ptx_files();
    REQUIRE(!files.empty());
    for (const auto& file : files) {
        INFO(file);
        Device d;
        d.load(Device::file(file));
        f(d);
    }
}

}  // namespace

TEST_CASE("vector add", "[exec]") {
    on_all([](Device& d) {
        const int n = 10007;
        const auto a = numbers(n, 1), b = numbers(n, 2);
        const auto pa = d.memory.put(a), pb = d.memory.put(b), pc = d.memory.reserve(n * 4);
        ok(d.run("vadd", {(n + 127) / 128}, {128}, pa, pb, pc, n));
        const auto c = d.memory.get<float>(pc, n);
        for (int i = 0; i < n; i++) REQUIRE(c[i] == a[i] + b[i]);
    });
}

TEST_CASE("grid-stride saxpy", "[exec]") {
    on_all([](Device& d) {
        const int n = 5000;
        const auto x = numbers(n, 1), y = numbers(n, 2);
        const auto px = d.memory.put(x), py = d.memory.put(y);
        ok(d.run("saxpy", {3}, {96}, 2.5f, px, py, n));
        const auto r = d.memory.get<float>(py, n);
        // Without optimisation nvcc emits a product and a sum, with it one fused operation.
        for (int i = 0; i < n; i++) REQUIRE((r[i] == std::fma(x[i], 2.5f, y[i]) || r[i] == 2.5f * x[i] + y[i]));
    });
}

TEST_CASE("3D stencil", "[exec]") {
    on_all([](Device& d) {
        const int nx = 37, ny = 21, nz = 11;
        const auto in = numbers(nx * ny * nz, 3);
        const auto pin = d.memory.put(in), pout = d.memory.put(std::vector<float>(in.size(), -1.f));
        ok(d.run("stencil3d", {2, 6}, {32, 4}, pin, pout, nx, ny, nz));
        const auto out = d.memory.get<float>(pout, in.size());
        for (int z = 0; z < nz; z++)
            for (int y = 0; y < ny; y++)
                for (int x = 0; x < nx; x++) {
                    const int i = (z * ny + y) * nx + x;
                    const bool inside = x > 0 && y > 0 && z > 0 && x < nx - 1 && y < ny - 1 && z < nz - 1;
                    if (!inside) {
                        REQUIRE(out[i] == -1.f);
                        continue;
                    }
                    const float sum =
                        in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - nx * ny] + in[i + nx * ny];
                    const float q = sum / 12.f;
                    REQUIRE((out[i] == std::fma(0.5f, in[i], q) || out[i] == 0.5f * in[i] + q));
                }
    });
}

TEST_CASE("tree reduction in shared memory", "[exec]") {
    on_all([](Device& d) {
        const int n = 12345;
        std::vector<float> in(n);
        for (int i = 0; i < n; i++) in[i] = static_cast<float>(i % 17);
        const auto pin = d.memory.put(in), pout = d.memory.reserve(8 * 4);
        ok(d.launch("reduce", {8}, {256}, 256 * 4, false, pin, pout, n));
        const auto out = d.memory.get<float>(pout, 8);
        REQUIRE(std::accumulate(out.begin(), out.end(), 0.f) == std::accumulate(in.begin(), in.end(), 0.f));
    });
}

TEST_CASE("tiled matrix product", "[exec]") {
    on_all([](Device& d) {
        const int n = 64;
        const auto a = numbers(n * n, 4), b = numbers(n * n, 5);
        const auto pa = d.memory.put(a), pb = d.memory.put(b), pc = d.memory.reserve(n * n * 4);
        ok(d.run("matmul", {n / 16, n / 16}, {16, 16}, pa, pb, pc, n));
        const auto c = d.memory.get<float>(pc, n * n);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                float fused = 0, plain = 0;
                for (int k = 0; k < n; k++) {
                    fused = std::fma(a[i * n + k], b[k * n + j], fused);
                    plain = plain + a[i * n + k] * b[k * n + j];
                }
                REQUIRE((c[i * n + j] == fused || c[i * n + j] == plain));
            }
    });
}

TEST_CASE("histogram with atomics in both memories", "[exec]") {
    on_all([](Device& d) {
        const int n = 100000;
        std::vector<unsigned char> data(n);
        std::vector<unsigned> expected(256);
        std::mt19937 random(6);
        for (auto& v : data) expected[v = static_cast<unsigned char>(random() % 256)]++;
        const auto pd = d.memory.put(data), ph = d.memory.put(std::vector<unsigned>(256));
        ok(d.run("hist", {13}, {192}, pd, ph, n));
        REQUIRE(d.memory.get<unsigned>(ph, 256) == expected);
    });
}

TEST_CASE("pointer chasing", "[exec]") {
    on_all([](Device& d) {
        struct Node {
            std::uint64_t next;
            int value, pad;
        };
        const int n = 70;
        std::vector<std::uint64_t> heads(n);
        std::vector<int> expected(n);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < i % 9; k++) {
                heads[i] = d.memory.put(std::vector<Node>{{heads[i], i * 10 + k, 0}});
            }
        for (int i = 0; i < n; i++) {
            unsigned s = 0;
            for (int k = i % 9; k-- > 0;) s = s * 31 + static_cast<unsigned>(i * 10 + k);
            expected[i] = static_cast<int>(s);
        }
        const auto ph = d.memory.put(heads), po = d.memory.reserve(n * 4);
        ok(d.run("chase", {2}, {64}, ph, po, n));
        REQUIRE(d.memory.get<int>(po, n) == expected);
    });
}

namespace {
double reference(double x, int k) {
    return k <= 0 ? x : std::sqrt(x) + reference(x / 2, k - 1) * std::exp(-x) + std::sin(x);
}
}  // namespace

TEST_CASE("double precision and recursive device functions", "[exec]") {
    on_all([](Device& d) {
        const int n = 100;
        std::vector<double> a(n);
        for (int i = 0; i < n; i++) a[i] = i * 0.37;
        const auto pa = d.memory.put(a), po = d.memory.reserve(n * 8);
        ok(d.run("dbl", {4}, {32}, pa, po, n));
        const auto o = d.memory.get<double>(po, n);
        for (int i = 0; i < n; i++) REQUIRE(std::fabs(o[i] - reference(a[i], i % 5)) <= 1e-13 * std::fabs(o[i]));
    });
}

TEST_CASE("a spin lock between the lanes of a warp and between blocks", "[exec]") {
    on_all([](Device& d) {
        ok(d.run("spin", {4}, {64}));
        int counter = 0;
        std::memcpy(&counter, d.memory.host(d.variable("counter")), 4);
        REQUIRE(counter == 5 + 4 * 64);
    });
}

TEST_CASE("a barrier of the whole grid", "[exec]") {
    on_all([](Device& d) {
        const int n = 32 * 6;
        std::vector<int> a(2 * n);
        for (int i = 0; i < n; i++) a[i] = i * 3;
        std::vector<int> expected = a;
        for (int k = 0; k < 4; k++)
            for (int r = 0; r < n; r++) expected[((k + 1) & 1) * n + r] = expected[(k & 1) * n + (r + 1) % n] + 1;
        const auto pa = d.memory.put(a);
        ok(d.launch("gridsync", {6}, {32}, 0, true, pa, n));
        REQUIRE(d.memory.get<int>(pa, 2 * n) == expected);
        REQUIRE(d.launch("gridsync", {6}, {32}, 0, false, pa, n).fault == Fault::Trap);
    });
}

TEST_CASE("shuffle, ballot and match", "[exec]") {
    on_all([](Device& d) {
        const auto po = d.memory.reserve(32 * 4);
        ok(d.run("warp", {1}, {32}, po));
        const auto o = d.memory.get<unsigned>(po, 32);
        std::vector<unsigned> v(32);
        for (unsigned l = 0; l < 32; l++) v[l] = l;
        for (unsigned k = 16; k != 0; k /= 2) {
            auto w = v;
            for (unsigned l = 0; l < 32; l++) w[l] = v[l] + (l + k < 32 ? v[l + k] : v[l]);
            v = w;
        }
        unsigned ballot = 0;
        for (unsigned l = 0; l < 32; l++) ballot |= (v[l] & 1) << l;
        for (unsigned l = 0; l < 32; l++) {
            unsigned match = 0;
            for (unsigned k = 0; k < 32; k++) match |= ((v[k] & 3) == (v[l] & 3) ? 1u : 0u) << k;
            REQUIRE(o[l] == v[l] + ballot + static_cast<unsigned>(__builtin_popcount(ballot)) + match);
        }
    });
}

TEST_CASE("function pointers, switches and local arrays", "[exec]") {
    on_all([](Device& d) {
        const auto po = d.memory.reserve(64 * 4);
        ok(d.run("indirect", {1}, {64}, po));
        const auto o = d.memory.get<int>(po, 64);
        for (int t = 0; t < 64; t++) REQUIRE(o[t] == (t % 2 != 0 ? t * 2 : t + 1));

        std::vector<int> s(64);
        for (int t = 0; t < 64; t++) s[t] = 100 + t * t;
        const auto ps = d.memory.put(s);
        ok(d.run("sw", {1}, {8}, ps));
        const auto r = d.memory.get<int>(ps, 8);
        const int expected[8] = {0, s[3], s[0] / 3, s[5] % 7, 1, s[7] ^ 3, s[9] * s[9], 9};
        for (int t = 0; t < 8; t++)
            if (t != 1 && t != 2 && t != 3 && t != 5)
                REQUIRE(r[t] == expected[t]);  // the others read what may be written

        ok(d.run("locals", {1}, {64}, po, 3));
        const auto l = d.memory.get<int>(po, 64);
        for (int t = 0; t < 64; t++) REQUIRE(l[t] == ((t * 7 + 3) & 31) * 3);
    });
}

TEST_CASE("what goes wrong is named", "[exec]") {
    on_all([](Device& d) {
        const auto pa = d.memory.reserve(100 * 4), pb = d.memory.reserve(100 * 4);
        Failure f = d.run("vadd", {1}, {128}, pa, pb, pb, 128);
        REQUIRE(f.fault == Fault::IllegalAddress);
        REQUIRE(f.message.find("kernel vadd") != std::string::npos);
        REQUIRE(f.message.find("thread (100,0,0)") != std::string::npos);
        REQUIRE(f.message.find("PTX line") != std::string::npos);
        f = d.run("vadd", {1}, {32}, pa + 2, pb, pb, 8);
        REQUIRE(f.fault == Fault::MisalignedAddress);
        f = d.run("vadd", {1}, {32}, std::uint64_t{0}, pb, pb, 8);
        REQUIRE(f.fault == Fault::IllegalAddress);
        const auto readonly = d.memory.reserve(128, false);
        REQUIRE(d.run("vadd", {1}, {32}, pa, pb, readonly, 8).fault == Fault::IllegalAddress);
        REQUIRE(d.run("vadd", {1}, {2048}, pa, pb, pb, 8).fault == Fault::InvalidLaunch);
        REQUIRE(d.run("nothing", {1}, {1}).fault == Fault::InvalidLaunch);
        f = d.run("as", {1}, {32}, 3);
        REQUIRE(f.fault == Fault::Assert);
        REQUIRE(f.message.find("Assertion `x==threadIdx.x`") != std::string::npos);
        // The device still works.
        ok(d.run("vadd", {1}, {128}, pa, pb, pb, 100));
    });
}

TEST_CASE("printf", "[exec]") {
    on_all([](Device& d) { ok(d.run("pr", {1}, {3}, 42)); });
}
