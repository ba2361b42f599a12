// SPDX-License-Identifier: MIT
// Collecting and writing the report. docs/report.md has the keys of its JSON.
#include "shim/observe/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "shim/base/log.h"
#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"
#include "shim/observe/call_sites.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/output.h"

namespace hpe::report {

HPE_READ_OFTEN constinit Flag wanted{false};

namespace {

struct Counts {
    std::uint64_t to_host_bytes = 0, to_host_transfers = 0, to_device_bytes = 0, to_device_transfers = 0;
    std::uint64_t read_faults = 0, write_faults = 0, evictions = 0;
    std::uint64_t ahead_used_bytes = 0, ahead_wasted_bytes = 0;

    void add(const Counts& more) {
        to_host_bytes += more.to_host_bytes;
        to_host_transfers += more.to_host_transfers;
        to_device_bytes += more.to_device_bytes;
        to_device_transfers += more.to_device_transfers;
        read_faults += more.read_faults;
        write_faults += more.write_faults;
        evictions += more.evictions;
        ahead_used_bytes += more.ahead_used_bytes;
        ahead_wasted_bytes += more.ahead_wasted_bytes;
    }
    bool any() const { return (to_host_transfers | to_device_transfers | read_faults | write_faults) != 0; }
};

struct Line {
    std::uint32_t id;
    std::uintptr_t base;
    std::size_t bytes;
    Counts counts;
};

// A program may allocate millions of objects: only the first that moved bytes are listed, all are in the total. The
// same bound holds for call sites.
constexpr std::size_t kListed = 1000;

// Of the JSON: it grows with every change that a reader of the former one would misread (docs/report.md).
constexpr int kVersion = 1;

constinit Mutex mutex;
constinit std::atomic<std::uint32_t> added{0}, removed{0};
constinit std::atomic<std::uint64_t> staged_copies{0}, staged_bytes{0};
struct State {
    std::string destination, protocol;
    std::vector<Line> lines;
    Counts total;
    std::uint64_t omitted = 0;
    bool written = false;
};
State& state() HPE_REQUIRES(mutex) {
    static NeverDestroyed<State> instance;
    return *instance;
}

Counts read(const Traffic& t) noexcept {
    return {t.to_host_bytes.load(),       t.to_host_transfers.load(), t.to_device_bytes.load(),
            t.to_device_transfers.load(), t.read_faults.load(),       t.write_faults.load(),
            t.evictions.load(),           t.ahead_used_bytes.load(),  t.ahead_wasted_bytes.load()};
}

// Of an object that is still allocated. What was prefetched and not used by now never will be.
Counts read_at_end(Object& object) {
    auto counts = read(*object.traffic);
    const auto blocks = object.shadowed.load(std::memory_order_acquire) ? object.blocks() : 0;
    for (std::uint32_t i = 0; i < blocks; ++i) {
        if (object.block(i).prefetch_requested()) counts.ahead_wasted_bytes += object.bytes_of(i);
    }
    return counts;
}

void collect(State& s, const Line& line) noexcept {
    s.total.add(line.counts);
    if (!line.counts.any()) return;
    try {
        if (s.lines.size() < kListed) return s.lines.push_back(line);
    } catch (const std::bad_alloc&) {  // the free goes on
    }
    ++s.omitted;
}

std::string json_of(const Counts& c) {
    return fmt::format(
        "\"bytes_to_host\": {}, \"transfers_to_host\": {}, \"bytes_to_device\": {}, \"transfers_to_device\": {}, "
        "\"read_faults\": {}, \"write_faults\": {}, \"evictions\": {}, \"bytes_ahead_used\": {}, "
        "\"bytes_ahead_wasted\": {}",
        c.to_host_bytes, c.to_host_transfers, c.to_device_bytes, c.to_device_transfers, c.read_faults, c.write_faults,
        c.evictions, c.ahead_used_bytes, c.ahead_wasted_bytes);
}

std::string json_of(const call_sites::Site& site) {
    return fmt::format(
        "{{\"address\": \"{:#x}\", \"offset\": \"{:#x}\", \"faults\": {}, \"bytes_to_host\": {}, \"module\": {}, "
        "\"symbol\": {}}}",
        site.address, site.offset, site.faults, site.bytes_to_host, json_text(site.module), json_text(site.symbol));
}

std::string json_of(const Line& line) {
    return fmt::format("{{\"id\": {}, \"address\": \"{:#x}\", \"bytes\": {}, {}}}", line.id, line.base, line.bytes,
                       json_of(line.counts));
}

std::string as_json(const State& s, std::uint32_t objects) {
    const auto rank = rank_of_process();
    const auto most = call_sites::most(kListed);
    const auto text = [](const auto& one) { return json_of(one); };
    return fmt::format(
        "{{\n  \"version\": {},\n  \"protocol\": \"{}\",\n  \"process\": {},\n  \"rank\": {},\n  \"program\": {},\n"
        "  \"objects\": {},\n  \"total\": {{{}}},\n  \"staged_copies\": {}, \"staged_bytes\": {},\n"
        "  \"call_sites\": {},\n  \"faults_elsewhere\": {},\n  \"call_stacks\": {},\n"
        "  \"per_object\": {},\n  \"objects_omitted\": {}\n}}\n",
        kVersion, s.protocol, getpid(), rank.empty() ? "null" : std::to_string(std::stoul(rank)),
        json_text(path_of_program()), objects, json_of(s.total), staged_copies.load(), staged_bytes.load(),
        json_list(most.sites, 4, text), most.faults_elsewhere, call_stacks::as_json(), json_list(s.lines, 4, text),
        s.omitted);
}

std::string size_text(std::uint64_t bytes) {
    if (bytes < 10'000) return fmt::format("{} B", bytes);
    if (bytes < 10'000'000) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024));
}

const char* plural(std::uint64_t count) noexcept { return count == 1 ? "" : "s"; }

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string as_text(const State& s, std::uint32_t objects) {
    const auto rank = rank_of_process();
    std::string out = fmt::format("hpe: report of process {}{}: protocol {}, {} object{}\n", getpid(),
                                  rank.empty() ? "" : " (rank " + rank + ")", s.protocol, objects, plural(objects));
    fmt::format_to(std::back_inserter(out), "hpe: {:>8} {:>12} {:>12} {:>6} {:>12} {:>6} {:>8} {:>8} {:>8}\n", "object",
                   "size", "to host", "calls", "to device", "calls", "rd fault", "wr fault", "evicted");
    const auto row = [&](const std::string& name, const std::string& size, const Counts& c) {
        fmt::format_to(std::back_inserter(out), "hpe: {:>8} {:>12} {:>12} {:>6} {:>12} {:>6} {:>8} {:>8} {:>8}\n", name,
                       size, size_text(c.to_host_bytes), c.to_host_transfers, size_text(c.to_device_bytes),
                       c.to_device_transfers, c.read_faults, c.write_faults, c.evictions);
    };
    constexpr std::size_t rows = 20;
    for (std::size_t i = 0; i < s.lines.size() && i < rows; ++i) {
        row(fmt::format("{}", s.lines[i].id), size_text(s.lines[i].bytes), s.lines[i].counts);
    }
    const auto more = s.omitted + (s.lines.size() > rows ? s.lines.size() - rows : 0);
    if (more != 0)
        fmt::format_to(std::back_inserter(out), "hpe: {:>8} more objects; HPE_REPORT=file.json lists them\n", more);
    row("total", "", s.total);
    if ((s.total.ahead_used_bytes | s.total.ahead_wasted_bytes) != 0) {
        fmt::format_to(std::back_inserter(out), "hpe: fetched ahead: {} used, {} wasted\n",
                       size_text(s.total.ahead_used_bytes), size_text(s.total.ahead_wasted_bytes));
    }
    if (const auto copies = staged_copies.load(); copies != 0) {
        fmt::format_to(std::back_inserter(out), "hpe: {} of the program's own copies, {}, went through pinned memory\n",
                       copies, size_text(staged_bytes.load()));
    }
    constexpr std::size_t sites = 3;
    for (const auto& site : call_sites::most(sites).sites) {
        const auto place = site.module.empty() ? fmt::format("{:#x}", site.address)
                                               : fmt::format("{}+{:#x}", file_name(site.module), site.offset);
        fmt::format_to(std::back_inserter(out), "hpe: {} fault{} brought {} to the host: {}{}\n", site.faults,
                       plural(site.faults), size_text(site.bytes_to_host), place,
                       site.symbol.empty() ? "" : " (" + site.symbol + ")");
    }
    return out;
}

}  // namespace

void copy_staged(std::size_t bytes) noexcept {
    staged_copies.fetch_add(1, std::memory_order_relaxed);
    staged_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

// Recycled with the object or the place in the region.
static void count_for(Traffic*& traffic) {
    if (traffic == &nobodys_traffic || traffic == nullptr) traffic = new Traffic;
    traffic->clear();
}

void number(Object& object) {
    object.report_id = object.is_region() ? 0 : added.fetch_add(1, std::memory_order_relaxed) + 1;
    count_for(object.traffic);
    if (object.is_region() && object.of_allocations == nullptr) {
        object.of_allocations = new std::atomic<Traffic*>[Allocations::kUnits] {};
    }
}

void list(const Object& object) noexcept {
    if (!object.is_region()) removed.fetch_add(1, std::memory_order_relaxed);
    const Locked lock(mutex);
    collect(state(), {object.report_id, object.base, object.requested_size, read(*object.traffic)});
}

void allocation_added(Object& region, std::size_t offset) {
    if (!numbered()) return;
    const auto id = added.fetch_add(1, std::memory_order_relaxed) + 1;
    auto& place = region.of_allocations[offset / Allocations::kUnit];
    Traffic* traffic = place.load(std::memory_order_relaxed);
    count_for(traffic);
    traffic->id.store(id, std::memory_order_relaxed);
    place.store(traffic, std::memory_order_release);
}

// An allocation of a region, as it stands.
static Line line_of(const Object& region, Allocations::One one) noexcept {
    const Traffic* const traffic =
        region.of_allocations[one.offset / Allocations::kUnit].load(std::memory_order_acquire);
    // Another thread has just put it into the region.
    if (traffic == nullptr) return {0, region.base + one.offset, one.bytes, {}};
    return {traffic->id.load(std::memory_order_relaxed), region.base + one.offset, one.bytes, read(*traffic)};
}

void allocation_removed(const Object& region, Allocations::One allocation) noexcept {
    if (!numbered()) return;
    removed.fetch_add(1, std::memory_order_relaxed);
    const Locked lock(mutex);
    collect(state(), line_of(region, allocation));
}

std::uint32_t objects() noexcept { return added.load() - removed.load(); }

void configure(const std::string& destination, std::string protocol) {
    const Locked lock(mutex);
    state().destination = from_this_folder(destination);
    state().protocol = std::move(protocol);
    wanted.store(!destination.empty(), std::memory_order_relaxed);
    if (!destination.empty()) call_sites::enable();
}

void number_allocations() noexcept { wanted.store(true, std::memory_order_relaxed); }

bool is_json(const std::string& destination) noexcept {
    return destination.size() > 5 && destination.ends_with(".json");
}

void write() noexcept try {
    const Locked lock(mutex);
    auto& s = state();
    if (s.destination.empty() || s.written) return;
    s.written = true;
    ObjectPool::for_open([&](Object& object) {
        collect(s, {object.report_id, object.base, object.requested_size, read_at_end(object)});
        if (!object.is_region()) return;
        const auto& all = *object.allocations;
        for (auto one = all.from(0); one.bytes != 0; one = all.from(one.offset + 1)) collect(s, line_of(object, one));
    });
    std::sort(s.lines.begin(), s.lines.end(), [](const Line& a, const Line& b) { return a.id < b.id; });
    const auto objects = added.load();
    if (s.destination == "-") {
        write_all(STDERR_FILENO, as_text(s, objects));
        return;
    }
    const auto path = path_of_output(s.destination);
    const int fd = open_output(path);
    if (fd < 0 || !write_all(fd, is_json(path) ? as_json(s, objects) : as_text(s, objects))) {
        log::error("cannot write the report to {}: {}", path, std::strerror(errno));
    }
    if (fd >= 0) close(fd);
} catch (const std::exception& problem) {
    log::error("cannot write the report: {}", problem.what());
}

}  // namespace hpe::report
