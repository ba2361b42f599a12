// SPDX-License-Identifier: MIT
// From events to the stacks of the report. docs/report.md describes the JSON.
#include "shim/observe/call_stacks.h"

#include <dlfcn.h>

#include <string_view>
#include <utility>

#include "shim/base/log.h"
#include "shim/base/modules.h"
#include "shim/observe/call_tree.h"
#include "shim/observe/output.h"

namespace hpe::call_stacks {

HPE_READ_OFTEN constinit Flag enabled{false};

namespace {

constexpr std::string_view kKeys[kCosts] = {
#define COST(name, key) key,
#include "shim/observe/costs.inc"
#undef COST
};

constinit std::atomic<bool> wanted{false};

// The calling thread's last wait, as long as it has not looked at a result.
struct Wait {
    backtrace::Ticket ticket = backtrace::kNotTaken;
    std::uint64_t ticks = 0;
};
thread_local constinit Wait last_wait __attribute__((tls_model("initial-exec")));

// Between a wait and new work for the device the thread looked at no result that libhpe knows of.
void look_at_waits(std::string_view name, backtrace::Ticket ticket, const backtrace::Payload& payload) noexcept {
    const auto before = std::exchange(last_wait, {});
    if (name.ends_with("Synchronize")) {
        last_wait = {ticket, payload[Cost::Ticks]};
    } else if (name.starts_with("cuLaunch") || payload[Cost::ToDeviceBytes] != 0) {
        const auto number = backtrace::number_of(before.ticket);
        if (number == 0) return;
        backtrace::Payload more{};
        more[Cost::NotNeeded] = 1;
        more[Cost::NotNeededTicks] = before.ticks;
        call_tree::add(number, more);
    }
}

double seconds(std::uint64_t ticks, const ticks::Point& now) {
    const auto in_ticks = static_cast<double>(now.ticks - ticks::beginning.ticks);
    const auto in_seconds = static_cast<double>(now.nanoseconds - ticks::beginning.nanoseconds) / 1e9;
    return in_ticks > 0 ? static_cast<double>(ticks) / in_ticks * in_seconds : 0;
}

// As far as the loader knows the name.
std::string name_of(const backtrace::Place& place) {
    if (place.module == modules::kNone) return fmt::format("{:#x}", place.offset);
    const auto& module = modules::at(place.module);
    Dl_info info{};
    if (module.loaded && dladdr(reinterpret_cast<void*>(module.bias + place.offset), &info) != 0 &&
        info.dli_sname != nullptr) {
        return demangled(info.dli_sname);
    }
    const std::string_view path(module.path);
    return fmt::format("{}+{:#x}", path.substr(path.rfind('/') + 1), place.offset);
}

// The innermost ones.
std::string calls_of(std::uint32_t number, std::size_t most) {
    std::string text;
    auto node = call_tree::stacks()[number - call_tree::kOther].node;
    for (std::size_t i = 0; i < most && node != call_tree::kNoParent; ++i) {
        const auto& [parent, place] = call_tree::nodes()[node];
        if (!text.empty()) text += " < ";
        text += name_of(place);
        node = parent;
    }
    if (node != call_tree::kNoParent) text += " < ..";
    return text;
}

std::string json_of(const backtrace::Payload& costs, const ticks::Point& now) {
    std::string text;
    for (std::size_t i = 0; i < kCosts; ++i) {
        if (costs[i] == 0) continue;
        if (!text.empty()) text += ", ";
        text += kKeys[i].ends_with("seconds") ? fmt::format("\"{}\": {:.9f}", kKeys[i], seconds(costs[i], now))
                                              : fmt::format("\"{}\": {}", kKeys[i], costs[i]);
    }
    return text;
}

std::string json_of(const modules::Module& module) {
    return fmt::format("{{\"path\": {}, \"build_id\": {}, \"loaded_at\": \"{:#x}\"}}", json_text(module.path),
                       json_text(modules::build_id_text(module)), module.bias);
}

// Of a node or a module; -1: of none.
long number_of(std::uint32_t number) { return number == modules::kNone ? -1 : static_cast<long>(number); }
static_assert(call_tree::kNoParent == modules::kNone);

std::string json_of(const call_tree::Node& node) {
    return fmt::format("[{}, {}, \"{:#x}\"]", number_of(node.parent), number_of(node.place.module), node.place.offset);
}

}  // namespace

void Event::take(const char* name, const ucontext_t* interrupted) noexcept {
    if (!on()) return;
    add(Cost::Ticks, ticks::now() - begin_);
    backtrace::Registers registers;
    if (interrupted != nullptr) {
        registers = backtrace::registers_of(*interrupted);
    } else {
        backtrace::look(registers);
    }
    ticket_ = backtrace::take(registers, name, payload_);
    look_at_waits(name, ticket_, payload_);
    if (then_ != nullptr) then_(ticket_);
    if (ticket_ == backtrace::kNotTaken) call_tree::add(call_tree::kOther, payload_);
}

void wait_was_needed() noexcept { last_wait = {}; }

bool add_to(backtrace::Ticket ticket, const backtrace::Payload& costs) noexcept {
    const auto number = backtrace::number_of(ticket);
    if (number == 0) return false;
    call_tree::add(number, costs);
    return true;
}

void want() noexcept {
    ticks::choose();
    wanted.store(true, std::memory_order_relaxed);
}

void begin() noexcept {
    if (!wanted.exchange(false, std::memory_order_acq_rel)) return;
    if (call_tree::open() && backtrace::start({call_tree::number, call_tree::add, call_tree::kOther})) {
        enabled.store(true, std::memory_order_release);
    } else {
        log::warn("the report has no call stacks: there is no memory, or no thread, for them");
    }
}

void finish() noexcept {
    if (!enabled.exchange(false, std::memory_order_acq_rel)) return;
    backtrace::finish();
    if (backtrace::state() == backtrace::State::Missing) {
        log::warn("the report has no call stacks: libunwind-x86_64.so.8 (package libunwind8) cannot be loaded");
    }
}

void in_child() noexcept {
    enabled.store(false, std::memory_order_relaxed);
    backtrace::in_child();
}

std::string text_of(backtrace::Ticket ticket) {
    constexpr std::size_t most = 8;
    const auto number = backtrace::state() == backtrace::State::Ready ? backtrace::number_of(ticket) : 0;
    return number > call_tree::kOther ? calls_of(number, most) : std::string();
}

std::string hottest() {
    constexpr std::size_t most = 6;
    backtrace::Payload costs{};
    std::string text;
    {
        const backtrace::Quiet quiet;
        if (!quiet) return {};
        std::uint32_t best = 0;
        const auto count = static_cast<std::uint32_t>(call_tree::stacks().size());
        for (auto number = call_tree::kOther + 1; number < call_tree::kOther + count; ++number) {
            const auto its = call_tree::counted(number);
            if (its[Cost::Ticks] <= costs[Cost::Ticks]) continue;
            best = number;
            costs = its;
        }
        if (best == 0) return {};
        text = fmt::format("{}: {}", call_tree::stacks()[best - call_tree::kOther].what, calls_of(best, most));
    }
    return fmt::format("{:.3f} s in {} x {}", seconds(costs[Cost::Ticks], ticks::point()), costs[Cost::Count], text);
}

std::string as_json() {
    if (backtrace::state() != backtrace::State::Ready) return "null";
    const auto now = ticks::point();
    const auto counts = backtrace::counts();
    const auto& stacks = call_tree::stacks();
    const auto of_stack = [&](const call_tree::Stack& stack) {
        const auto number = call_tree::kOther + static_cast<std::uint32_t>(&stack - stacks.data());
        const auto costs = call_tree::counted(number);
        if (number == call_tree::kOther || costs[Cost::Count] == 0) return std::string();
        return fmt::format("{{\"node\": {}, \"what\": {}, \"cut\": {}, {}}}", number_of(stack.node),
                           json_text(stack.what), stack.cut, json_of(costs, now));
    };
    const auto without_stack = call_tree::counted(call_tree::kOther);
    return fmt::format(
        "{{\n    \"seconds\": {:.9f},\n    \"modules\": {},\n    \"nodes\": {},\n    \"stacks\": {},\n"
        "    \"without_stack\": {{{}}},\n    \"taken\": {{\"known\": {}, \"unwound\": {}, \"not_taken\": {}}}\n  }}",
        seconds(now.ticks - ticks::beginning.ticks, now),
        json_list(modules::all(), 6, [](const auto& one) { return json_of(one); }),
        json_list(call_tree::nodes(), 6, [](const auto& one) { return json_of(one); }), json_list(stacks, 6, of_stack),
        json_of(without_stack, now), counts.known, counts.unwound, without_stack[Cost::Count]);
}

}  // namespace hpe::call_stacks
