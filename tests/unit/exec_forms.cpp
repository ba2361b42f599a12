// SPDX-License-Identifier: MIT
// Every instruction form on special and random operands. Exact forms must give the fingerprints that a real GPU gave
// (tests/ptx/recorded, by scripts/gpu-record); with HPE_FORMS_BIN, the cells that gpu-record wrote too, differing ones
// are shown one by one.
#include <cmath>
#include <map>
#include <sstream>

#include "tests/ptx/forms_input.h"
#include "tests/unit/catch.h"
#include "tests/unit/exec_harness.h"

namespace hpe::soft::exec {
void use_baseline_handlers(bool yes);
}
using namespace exec_test;

namespace {

struct Form {
    std::string name, domain, exact, text;
    unsigned bytes = 0;
};

std::string environment(const char* name) {
    const char* v = std::getenv(name);
    return v == nullptr ? "" : v;
}

std::vector<Form> read_list() {
    std::istringstream in(Device::file(environment("HPE_FORMS_LIST")));
    std::vector<Form> forms;
    for (std::string line; std::getline(in, line);) {
        Form f;
        std::istringstream words(line);
        words >> f.name >> f.domain >> f.exact >> f.bytes;
        std::getline(words, f.text);
        f.text.erase(0, 1);
        forms.push_back(f);
    }
    return forms;
}

double ulps(float a, float b) {
    if (std::isnan(a) && std::isnan(b)) return 0;
    if (a == b) return 0;
    const auto order = [](float v) {
        std::int32_t bits = 0;
        std::memcpy(&bits, &v, 4);
        return bits < 0 ? -static_cast<double>(bits & 0x7fffffff) : static_cast<double>(bits);
    };
    return std::fabs(order(a) - order(b));
}

}  // namespace

TEST_CASE("instruction forms give what the hardware gave", "[exec]") {
    const auto list = read_list();
    REQUIRE(list.size() > 800);
    std::map<std::string, std::string> expected;
    {
        std::istringstream in(Device::file(environment("HPE_FORMS_EXPECTED")));
        for (std::string line; std::getline(in, line);)
            if (const auto at = line.find(' '); line[0] != '#') expected[line.substr(at + 1)] = line.substr(0, at);
    }
    const std::string recorded = environment("HPE_FORMS_BIN").empty() ? "" : Device::file(environment("HPE_FORMS_BIN"));
    const bool baseline = GENERATE(false, true);
    INFO("oldest instruction set: " << baseline);
    hpe::soft::exec::use_baseline_handlers(baseline);
    Device d;
    unsigned differing = 0;
    for (std::size_t n = 0; n < list.size(); n++) {
        const Form& form = list[n];
        std::uint64_t at[4];
        std::vector<std::uint64_t> operand[3];
        for (unsigned k = 0; k < 3; k++) at[k] = d.memory.put(operand[k] = forms::input(form.domain, k));
        at[3] = d.memory.put(std::vector<std::uint64_t>(forms::cells));
        d.load(Device::file(environment("HPE_FORMS_PTX") + "/" + form.name + ".ptx"));
        const Failure f = d.run(form.name, {forms::cells / 128}, {128}, at[0], at[1], at[2], at[3]);
        INFO(form.text << " " << f.message);
        CHECK(f.fault == Fault::None);
        if (f) continue;
        const auto got = d.memory.get<std::uint64_t>(at[3], forms::cells);
        if (form.exact == "exact" && !expected.empty()) {
            char hash[20];
            std::snprintf(hash, sizeof hash, "%016llx",
                          static_cast<unsigned long long>(forms::fingerprint(got.data())));
            CHECK(expected[form.domain + " " + form.text] == hash);
        }
        if (recorded.empty()) continue;
        const char* cells = recorded.data() + n * forms::cells * 8;
        unsigned shown = 0;
        double worst = 0;
        for (unsigned c = 0; c < forms::cells; c++) {
            std::uint64_t want = 0;
            std::memcpy(&want, cells + c * 8, 8);
            if (want == got[c]) continue;
            if (form.exact != "exact") {
                float x = 0, y = 0;
                std::memcpy(&x, &want, 4), std::memcpy(&y, &got[c], 4);
                const double off = ulps(x, y);
                worst = std::max(worst, off);
                if (off <= std::stod(form.exact)) continue;
            }
            if (shown++ < 3)
                UNSCOPED_INFO(form.domain << " " << form.text << std::hex << " a=" << operand[0][c]
                                          << " b=" << operand[1][c] << " c=" << operand[2][c] << " gpu=" << want
                                          << " soft=" << got[c]);
        }
        if (shown != 0) differing++;
        INFO("cells that differ: " << shown << " worst ulps " << worst);
        CHECK(shown == 0);
    }
    hpe::soft::exec::use_baseline_handlers(false);
    CHECK(differing == 0);
}
