// SPDX-License-Identifier: MIT
// From events to the stacks of the report. docs/report.md describes the JSON.
#include "shim/observe/call_stacks.h"

#include <dlfcn.h>

#include <iterator>
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
constinit std::array<std::atomic<std::uint64_t>, kCosts> without_stack{};

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

template <class Value>
void append_costs(std::string& out, const ticks::Point& now, Value&& value) {
    const char* separator = "";
    for (std::size_t i = 0; i < kCosts; ++i) {
        const std::uint64_t much = value(i);
        if (much == 0) continue;
        fmt::format_to(std::back_inserter(out), "{}\"{}\": ", separator, kKeys[i]);
        if (kKeys[i].ends_with("seconds")) {
            fmt::format_to(std::back_inserter(out), "{:.9f}", seconds(much, now));
        } else {
            fmt::format_to(std::back_inserter(out), "{}", much);
        }
        separator = ", ";
    }
}

void append_modules(std::string& out) {
    out += "\"modules\": [";
    const char* separator = "\n";
    for (std::uint32_t i = 0; i < modules::count(); ++i) {
        const auto& module = modules::at(i);
        out += separator;
        out += "      {\"path\": ";
        append_json_text(out, module.path);
        out += ", \"build_id\": ";
        append_json_text(out, modules::build_id_text(module));
        fmt::format_to(std::back_inserter(out), ", \"loaded_at\": \"{:#x}\"}}", module.bias);
        separator = ",\n";
    }
    out += "\n    ]";
}

void append_nodes(std::string& out) {
    out += "\"nodes\": [";
    const char* separator = "\n";
    for (const auto& node : call_tree::nodes()) {
        const auto number = [](std::uint32_t n) { return n == modules::kNone ? -1 : static_cast<long>(n); };
        fmt::format_to(std::back_inserter(out), "{}      [{}, {}, \"{:#x}\"]", separator, number(node.parent),
                       number(node.place.module), node.place.offset);
        separator = ",\n";
    }
    out += "\n    ]";
}

void append_stacks(std::string& out, const ticks::Point& now) {
    out += "\"stacks\": [";
    const char* separator = "\n";
    const auto& stacks = call_tree::stacks();
    for (std::size_t i = 0; i < stacks.size(); ++i) {
        const auto costs = call_tree::counted(static_cast<std::uint32_t>(i) + call_tree::kOther);
        if (costs[Cost::Count] == 0) continue;
        const auto node = stacks[i].node == call_tree::kNoParent ? -1 : static_cast<long>(stacks[i].node);
        fmt::format_to(std::back_inserter(out), "{}      {{\"node\": {}, \"what\": ", separator, node);
        append_json_text(out, stacks[i].what);
        fmt::format_to(std::back_inserter(out), ", \"cut\": {}, ", stacks[i].cut);
        append_costs(out, now, [&](std::size_t column) { return costs[column]; });
        out += "}";
        separator = ",\n";
    }
    out += "\n    ]";
}

}  // namespace

void Event::take(const char* name, const ucontext_t* interrupted) noexcept {
    if (!on()) return;
    add(Cost::Ticks, ticks::look() - begin_);
    backtrace::Registers registers;
    if (interrupted != nullptr) {
        registers = backtrace::registers_of(*interrupted);
    } else {
        backtrace::look(registers);
    }
    ticket_ = backtrace::take(registers, name, payload_);
    look_at_waits(name, ticket_, payload_);
    if (then_ != nullptr) then_(ticket_);
    if (ticket_ != backtrace::kNotTaken) return;
    for (std::size_t i = 0; i < kCosts; ++i) without_stack[i].fetch_add(payload_[i], std::memory_order_relaxed);
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
    if (call_tree::open() && backtrace::start({call_tree::number, call_tree::add})) {
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
    struct Found {
        std::uint32_t number = 0;
        backtrace::Payload costs{};
        std::string text;
    } found;
    backtrace::while_quiet(
        [](void* argument) {
            auto& best = *static_cast<Found*>(argument);
            const auto count = static_cast<std::uint32_t>(call_tree::stacks().size());
            for (auto number = call_tree::kOther + 1; number < call_tree::kOther + count; ++number) {
                const auto costs = call_tree::counted(number);
                if (costs[Cost::Ticks] > best.costs[Cost::Ticks]) best = {number, costs, {}};
            }
            if (best.number == 0) return;
            best.text = fmt::format("{}: {}", call_tree::stacks()[best.number - call_tree::kOther].what,
                                    calls_of(best.number, most));
        },
        &found);
    if (found.text.empty()) return {};
    return fmt::format("{:.3f} s in {} x {}", seconds(found.costs[Cost::Ticks], ticks::point()),
                       found.costs[Cost::Count], found.text);
}

void append_json(std::string& out) {
    if (backtrace::state() != backtrace::State::Ready) {
        out += "null";
        return;
    }
    const auto now = ticks::point();
    const auto counts = backtrace::counts();
    fmt::format_to(std::back_inserter(out), "{{\n    \"seconds\": {:.9f},\n    ",
                   seconds(now.ticks - ticks::beginning.ticks, now));
    append_modules(out);
    out += ",\n    ";
    append_nodes(out);
    out += ",\n    ";
    append_stacks(out, now);
    out += ",\n    \"without_stack\": {";
    append_costs(out, now, [](std::size_t column) { return without_stack[column].load(); });
    fmt::format_to(std::back_inserter(out),
                   "}},\n    \"taken\": {{\"known\": {}, \"unwound\": {}, \"not_taken\": {}}}\n  }}", counts.known,
                   counts.unwound, counts.not_taken);
}

}  // namespace hpe::call_stacks
