// SPDX-License-Identifier: MIT
// Explores every scenario with each table: nothing may be wrong. Then takes out one mend after the other: the bug must
// be found, and be of its kind. Then spoils the tables, entry by entry: that must be found, too.
//
// With arguments: `checker NAME [MEND]` tells the story of what is found in the scenario whose name begins so, without
// the mend of that number.
#include <algorithm>
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
            if (found.wrong == Wrong::Nothing) continue;
            right = false;
            std::printf("WRONG: %s\n%s", name(found.wrong).data(), found.story.c_str());
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

// Whether some scenario finds that something is wrong with a table.
bool finds(const Named& spoilt, bool batch, Sum& sum) {
    return std::any_of(scenarios().begin(), scenarios().end(), [&](const Scenario& scenario) {
        return (batch ? scenario.for_batch : !scenario.batch_only) &&
               explore(scenario, spoilt, Mend::None, sum).wrong != Wrong::Nothing;
    });
}

// Every transfer in the tables, and every end of a host copy. Not those of evictions and of waits: without them only
// time is lost.
bool all_entries_needed(Sum& sum) {
    using enum hpe::Event;
    bool needed = true;
    const auto try_with = [&](const Named& table, hpe::State state, hpe::Event event, hpe::Transition instead) {
        auto spoilt = table.table;
        spoilt[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)] = instead;
        if (finds({table.name, spoilt}, &table.table == &hpe::kBatch, sum)) return;
        needed = false;
        std::printf("NOT FOUND: another entry for state %d, event %d (%s)\n", static_cast<int>(state),
                    static_cast<int>(event), table.name);
    };
    for (const auto& table : kTables) {
        for (const auto event : {CpuRead, CpuWrite, Release, DeviceRead, DeviceWrite}) {
            for (std::size_t s = 0; s < hpe::kStates; ++s) {
                const auto state = static_cast<hpe::State>(s);
                const auto [action, next] = table.table[s][static_cast<std::size_t>(event)];
                if (action != hpe::Action::Nothing) try_with(table, state, event, {hpe::Action::Nothing, next});
                if (hpe::valid_on_host(state) && next != state) try_with(table, state, event, {action, state});
            }
        }
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
    Sum plain, without, spoilt;
    const bool right = all_right(plain), needed = all_needed(without), entries = all_entries_needed(spoilt);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const auto say = [](const char* what, const Sum& sum) {
        std::printf("%s: %zu explorations, %zu states, %zu moves\n", what, sum.explored, sum.states, sum.moves);
    };
    say("scenarios with their tables", plain);
    say("without one mend", without);
    say("with a table that is spoilt", spoilt);
    std::printf("%.1f s\n", took.count());
    return right && needed && entries ? 0 : 1;
} catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
}
