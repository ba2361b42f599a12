// SPDX-License-Identifier: MIT
// An explicit-state model checker (Clarke, Emerson, Sistla, TOPLAS 1986): visits every state that a model reaches, the
// nearest first, so that the story of what went wrong is the shortest one.
//
// A model has actors. step(state, actor, moves) appends what the actor may do next: nothing if it waits or is done,
// several moves if chance or time decides. It finds what step() itself reports; a deadlock: nobody can move, and not
// all is finished; and starvation: a way of going on for ever. While somebody waits() such a way is an error if it
// is fair. Weak fairness: who can always move does so at some time. Strong fairness, for the moves that are
// marked so: who can make that move again and again makes it at some time. Looked for in the strongly connected
// components (Tarjan, SIAM J. Comput. 1972) without the states that strong fairness leaves (Lichtenstein, Pnueli, POPL
// 1985).
//
// State: trivially copyable, without padding. Model: State, initial(), actors(), step(), finished(), waits(), who().
// One thread. Errors: std::bad_alloc; std::length_error where there are more states than `most`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace checker {

enum class Wrong : std::uint8_t {
    Nothing,
    Data,        // something was written and is not seen
    Memory,      // memory is used that the program has given back, or is missing that it has
    Gate,        // launches and faults are inside together
    Marks,       // a block has a mark that its state excludes
    Deadlock,    // nobody can move
    Starvation,  // they move for ever
};
inline std::string_view name(Wrong wrong) {
    constexpr std::string_view names[] = {"nothing", "data", "memory", "gate", "marks", "deadlock", "starvation"};
    return names[static_cast<std::size_t>(wrong)];
}

// Strongly fair moves of one kind stand for each other.
enum class Fair : std::uint8_t { Weak, Entry, Access };

template <class State>
struct Move {
    State to{};
    const char* words = "";
    int block = -1;  // that the words are about
    Fair fair = Fair::Weak;
    Wrong wrong = Wrong::Nothing;  // then `to` means nothing
};

struct Found {
    Wrong wrong = Wrong::Nothing;
    std::string story;
    std::size_t states = 0, moves = 0;
};

template <class Model>
class Explorer {
public:
    using State = typename Model::State;
    static_assert(std::has_unique_object_representations_v<State> && std::is_trivially_copyable_v<State>);

    Explorer(const Model& model, std::size_t most) : model_(model), most_(most) {}

    Found run() {
        insert(model_.initial(), 0);
        for (Index at = 0; at < states_.size(); ++at) {
            first_.push_back(static_cast<Index>(edges_.size()));
            const State state = states_[at];
            for (unsigned actor = 0; actor < model_.actors(); ++actor) {
                moves_.clear();
                model_.step(state, actor, moves_);
                for (const auto& move : moves_) {
                    if (move.wrong != Wrong::Nothing) {
                        const auto wrong = move.wrong;
                        const auto last = line(actor, move);  // story() makes the moves of other states
                        return found(wrong, story(at) + last);
                    }
                    edges_.push_back({insert(move.to, at), static_cast<std::uint8_t>(actor), move.fair});
                }
            }
            if (first_.back() == edges_.size() && !model_.finished(state)) {
                return found(Wrong::Deadlock, story(at) + "    nobody can move\n");
            }
        }
        first_.push_back(static_cast<Index>(edges_.size()));
        return look_for_starvation();
    }

private:
    using Index = std::uint32_t;
    static constexpr Index kNone = ~Index{0};
    struct Edge {
        Index to;
        std::uint8_t actor;
        Fair fair;
        std::uint32_t kind() const {
            return fair == Fair::Weak ? 0 : 1u << (actor * 2 + static_cast<unsigned>(fair) - 1);
        }
    };

    Found found(Wrong wrong, std::string story) const {
        return {wrong, std::move(story), states_.size(), edges_.size()};
    }

    static std::size_t hash(const State& state) {
        unsigned char bytes[(sizeof(State) + 7) / 8 * 8] = {};
        std::memcpy(bytes, &state, sizeof state);
        std::uint64_t hash = 0;
        for (std::size_t i = 0; i < sizeof bytes; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes + i, 8);
            hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
        return hash;
    }
    Index& place_of(const State& state) {
        auto place = hash(state) & (places_.size() - 1);
        while (places_[place] != kNone && std::memcmp(&states_[places_[place]], &state, sizeof state) != 0) {
            place = (place + 1) & (places_.size() - 1);
        }
        return places_[place];
    }
    Index insert(const State& state, Index parent) {
        if (states_.size() * 2 >= places_.size()) {
            places_.assign(std::max<std::size_t>(places_.size() * 2, 1 << 12), kNone);
            for (Index i = 0; i < states_.size(); ++i) place_of(states_[i]) = i;
        }
        auto& place = place_of(state);
        if (place != kNone) return place;
        if (states_.size() >= most_) throw std::length_error("more states than the checker takes");
        states_.push_back(state);
        parents_.push_back(parent);
        return place = static_cast<Index>(states_.size() - 1);
    }

    std::string line(unsigned actor, const Move<State>& move) const {
        auto text = "    " + std::string(model_.who(actor)) + " " + move.words;
        if (move.block >= 0) text += " (block " + std::to_string(move.block) + ")";
        return text + "\n";
    }
    // The line of a move between two states. The moves were not kept: they are made again.
    std::string line(Index from, Index to) {
        for (unsigned actor = 0; actor < model_.actors(); ++actor) {
            moves_.clear();
            model_.step(states_[from], actor, moves_);
            for (const auto& move : moves_) {
                if (std::memcmp(&move.to, &states_[to], sizeof(State)) == 0) return line(actor, move);
            }
        }
        return "    ?\n";
    }
    std::string story(Index at) {
        std::vector<Index> way;
        for (; at != 0; at = parents_[at]) way.push_back(at);
        std::string text;
        Index from = 0;
        for (auto to = way.rbegin(); to != way.rend(); from = *to++) text += line(from, *to);
        return text;
    }

    Found look_for_starvation() {
        std::vector<Index> all(states_.size());
        for (Index i = 0; i < all.size(); ++i) all[i] = i;
        set_of_.assign(states_.size(), 0);
        std::vector<std::vector<Index>> sets{std::move(all)};
        while (!sets.empty()) {
            const auto set = std::move(sets.back());
            sets.pop_back();
            const auto number = mark(set);
            for (const auto& component : components(set, number)) {
                // Who is over stays so: it is the same in all of the component.
                if (!model_.waits(states_[component.front()])) continue;
                mark(component);
                auto left = fair_part(component);
                if (left.size() == component.size()) return found(Wrong::Starvation, endless(component));
                if (!left.empty()) sets.push_back(std::move(left));
            }
        }
        return found(Wrong::Nothing, "");
    }
    Index mark(const std::vector<Index>& set) {
        ++sets_made_;
        for (const auto v : set) set_of_[v] = sets_made_;
        return sets_made_;
    }
    template <class Visit>
    void for_edges(Index v, Visit&& visit) const {
        for (auto e = first_[v]; e < first_[v + 1]; ++e) visit(edges_[e]);
    }

    // What is left of a component that fair runs may stay in for ever: all of it, if such a run exists.
    std::vector<Index> fair_part(const std::vector<Index>& component) const {
        std::uint32_t moved = 0, moved_strongly = 0, always = ~0u;
        for (const auto v : component) {
            std::uint32_t can = 0;
            for_edges(v, [&](const Edge& e) {
                can |= 1u << e.actor;
                if (set_of_[e.to] != set_of_[v]) return;
                moved |= 1u << e.actor;
                moved_strongly |= e.kind();
            });
            always &= can;
        }
        if ((always & ~moved) != 0) return {};
        std::vector<Index> left;
        for (const auto v : component) {
            bool leaves = false;
            for_edges(v, [&](const Edge& e) { leaves |= (e.kind() & ~moved_strongly) != 0; });
            if (!leaves) left.push_back(v);
        }
        return left;
    }

    // The strongly connected components of a set in which there is a way to go on, by Tarjan's algorithm.
    std::vector<std::vector<Index>> components(const std::vector<Index>& set, Index number) {
        struct Frame {
            Index v, edge;
        };
        std::vector<std::vector<Index>> result;
        std::vector<Index> stack;
        std::vector<Frame> frames;
        order_.resize(states_.size());
        low_.resize(states_.size());
        for (const auto v : set) order_[v] = 0;
        Index next = 0;
        const auto open = [&](Index v) {
            order_[v] = low_[v] = ++next;
            stack.push_back(v);
            frames.push_back({v, first_[v]});
        };
        for (const auto root : set) {
            if (order_[root] == 0) open(root);
            while (!frames.empty()) {
                auto& [v, edge] = frames.back();
                if (edge < first_[v + 1]) {
                    const auto to = edges_[edge++].to;
                    if (set_of_[to] != number) continue;
                    if (order_[to] == 0) {
                        open(to);
                    } else if (order_[to] != kNone) {
                        low_[v] = std::min(low_[v], order_[to]);
                    }
                    continue;
                }
                const auto done = v;
                frames.pop_back();
                if (!frames.empty()) low_[frames.back().v] = std::min(low_[frames.back().v], low_[done]);
                if (low_[done] != order_[done]) continue;
                const auto begin = std::find(stack.rbegin(), stack.rend(), done).base() - 1;
                std::vector<Index> component(begin, stack.end());
                stack.erase(begin, stack.end());
                for (const auto member : component) order_[member] = kNone;
                bool goes_on = component.size() > 1;
                for_edges(done, [&](const Edge& e) { goes_on |= e.to == done; });
                if (goes_on) result.push_back(std::move(component));
            }
        }
        return result;
    }

    std::string endless(const std::vector<Index>& component) {
        const auto entry = *std::min_element(component.begin(), component.end());
        std::set<std::string> lines;
        for (std::size_t i = 0; i < component.size() && i < 3000; ++i) {
            const auto v = component[i];
            for_edges(v, [&](const Edge& e) {
                if (set_of_[e.to] == set_of_[v]) lines.insert(line(v, e.to));
            });
        }
        auto text = story(entry) + "    and then for ever, in some order:\n";
        for (const auto& each : lines) text += "    " + each;
        return text;
    }

    const Model& model_;
    const std::size_t most_;
    std::vector<State> states_;
    std::vector<Index> parents_, places_, first_;
    std::vector<Edge> edges_;  // of the states, one after the other
    std::vector<Move<State>> moves_;
    std::vector<Index> set_of_, order_, low_;
    Index sets_made_ = 0;
};

}  // namespace checker
