// SPDX-License-Identifier: MIT
// Nodes by parent and place, stacks by node and name, and their counters.
#include "shim/observe/call_tree.h"

#include <sys/mman.h>

#include <atomic>
#include <map>
#include <new>
#include <string_view>
#include <tuple>

#include "shim/base/kernel.h"
#include "shim/base/never_destroyed.h"

namespace hpe::call_tree {

namespace {

using Counters = std::array<std::atomic<std::uint64_t>, backtrace::kPayloadWords>;
constinit std::atomic<Counters*> counters{nullptr};

struct State {
    std::vector<Node> nodes;
    std::vector<Stack> stacks{{"", kNoParent, true}};
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::uint32_t> node_of;
    std::map<std::tuple<std::uint32_t, std::string_view, bool>, std::uint32_t> stack_of;
};
State& state() {
    static NeverDestroyed<State> instance;
    return *instance;
}

}  // namespace

bool open() noexcept {
    if (counters.load(std::memory_order_relaxed) != nullptr) return true;
    void* const place = kernel::mmap(nullptr, sizeof(Counters) * (kMost + kOther), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (place == MAP_FAILED) return false;
    counters.store(static_cast<Counters*>(place), std::memory_order_release);  // zeros
    return true;
}

std::uint32_t number(const char* what, std::span<const backtrace::Place> places, bool cut) try {
    auto& s = state();
    const auto next = static_cast<std::uint32_t>(s.stacks.size()) + kOther;
    if (next > kMost || places.empty()) return kOther;
    auto parent = kNoParent;
    for (auto i = places.size(); i-- > 0;) {
        // First the node: should there be no memory for its name, nothing names it.
        const auto own = static_cast<std::uint32_t>(s.nodes.size());
        s.nodes.push_back({parent, places[i]});
        const auto [at, fresh] = s.node_of.try_emplace({parent, places[i].module, places[i].offset}, own);
        if (!fresh) s.nodes.pop_back();
        parent = at->second;
    }
    s.stacks.push_back({what, parent, cut});
    const auto [at, fresh] = s.stack_of.try_emplace({parent, what, cut}, next);
    if (!fresh) s.stacks.pop_back();
    return at->second;
} catch (const std::bad_alloc&) {
    return kOther;
}

void add(std::uint32_t number, const backtrace::Payload& payload) {
    Counters* const all = counters.load(std::memory_order_acquire);
    if (all == nullptr) return;
    for (std::size_t i = 0; i < payload.size(); ++i) {
        if (payload[i] != 0) all[number][i].fetch_add(payload[i], std::memory_order_relaxed);
    }
}

const std::vector<Node>& nodes() { return state().nodes; }
const std::vector<Stack>& stacks() { return state().stacks; }

backtrace::Payload counted(std::uint32_t number) {
    backtrace::Payload payload{};
    const Counters* const all = counters.load(std::memory_order_acquire);
    for (std::size_t i = 0; all != nullptr && i < payload.size(); ++i) {
        payload[i] = all[number][i].load(std::memory_order_relaxed);
    }
    return payload;
}

}  // namespace hpe::call_tree
