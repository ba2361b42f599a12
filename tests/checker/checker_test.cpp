// SPDX-License-Identifier: MIT
// Explores every scenario with each table: nothing may be wrong. Then takes out one mend after the other: the bug must
// be found, and be of its kind.
//
// With arguments: `checker NAME [MEND]` tells the story of what is found in the scenario whose name begins so, without
// the mend of that number.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/checker/scenarios.h"

using namespace checker;

namespace {

constexpr std::size_t kMost = 40'000'000;  // states of a scenario; some 250 bytes each

struct Sum {
    std::size_t explored = 0, states = 0, moves = 0;
};

struct Named {
    const char* name;
    const hpe::TransitionTable& table;
};
const Named kTables[] = {{"write-invalidate", hpe::kWriteInvalidate}, {"batch", hpe::kBatch}};

bool begins(const Scenario& scenario, const char* name) {
    return std::strncmp(scenario.name, name, std::strlen(name)) == 0;
}
bool has(const Scenario& scenario, const Named& table) {
    return &table.table == &hpe::kBatch ? scenario.for_batch : !scenario.batch_only;
}

Found explore(const Scenario& scenario, const Named& table, Mend without, Sum& sum) {
    const Model model(scenario, table.table, without);
    const auto found = Explorer(model, kMost).run();
    ++sum.explored;
    sum.states += found.states;
    sum.moves += found.moves;
    return found;
}

bool all_right(Sum& sum) {
    bool right = true;
    for (const auto& scenario : scenarios()) {
        for (const auto& table : kTables) {
            if (!has(scenario, table)) continue;
            const auto found = explore(scenario, table, Mend::None, sum);
            std::printf("%8zu states %9zu moves  %s (%s)\n", found.states, found.moves, scenario.name, table.name);
            if (found.wrong == Wrong::Nothing && scenario.known == Wrong::Nothing) continue;
            right = right && found.wrong == scenario.known;
            std::printf("%s: %s\n%s", found.wrong == scenario.known ? "known" : "WRONG", name(found.wrong).data(),
                        found.story.c_str());
        }
    }
    return right;
}

bool all_needed(Sum& sum) {
    bool needed = mends().size() == kMends;
    for (const auto& mended : mends()) {
        auto found = Wrong::Nothing;
        std::size_t steps = 0;
        for (const auto& scenario : scenarios()) {
            for (const auto& table : kTables) {
                if (!begins(scenario, mended.scenario) || !has(scenario, table) || found != Wrong::Nothing) continue;
                const auto seen = explore(scenario, table, mended.mend, sum);
                found = seen.wrong;
                steps = static_cast<std::size_t>(std::count(seen.story.begin(), seen.story.end(), '\n'));
            }
        }
        const bool right = found == mended.wrong;
        needed = needed && right;
        std::printf("%s %-10s in %3zu steps without: %s\n", right ? "found    " : "NOT FOUND", name(found).data(),
                    steps, mended.what);
    }
    return needed;
}

int tell(const char* name_of, unsigned mend) {
    Sum sum;
    for (const auto& scenario : scenarios()) {
        for (const auto& table : kTables) {
            if (!begins(scenario, name_of) || !has(scenario, table)) continue;
            const auto found = explore(scenario, table, static_cast<Mend>(mend), sum);
            std::printf("%s (%s): %s\n%s", scenario.name, table.name, name(found.wrong).data(), found.story.c_str());
        }
    }
    return sum.explored != 0 ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc > 1) return tell(argv[1], argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0);
    const auto begin = std::chrono::steady_clock::now();
    Sum plain, without;
    const bool right = all_right(plain), needed = all_needed(without);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf(
        "%zu scenarios with their tables: %zu states, %zu moves; %zu mends taken out: %zu states, %zu moves; "
        "%.1f s\n",
        plain.explored, plain.states, plain.moves, mends().size(), without.states, without.moves, took.count());
    return right && needed ? 0 : 1;
} catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
}
