// SPDX-License-Identifier: MIT
// Writing the timeline: Chrome's trace event format ("Trace Event Format", Google 2016), JSON with times in
// microseconds of which ui.perfetto.dev takes the fraction, too. Each thread is a track; streams are tracks of the same
// process, with numbers that no thread can have. On one track events are disjoint or lie in one another, as the format
// demands.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "shim/base/kernel_file.h"
#include "shim/base/log.h"
#include "shim/base/never_destroyed.h"
#include "shim/observe/call_stacks.h"
#include "shim/observe/kernel_times.h"
#include "shim/observe/output.h"
#include "shim/observe/trace.h"

namespace hpe::trace {

namespace {

// What the viewer groups by, and what the number of a record is in its arguments.
struct Category {
    const char* name;
    const char* number;  // nullptr: nothing to be shown
    bool bytes;          // always shown
};
constexpr Category kCategories[kKinds] = {
    {"call", "result", false},     {"fault", "object", true},  {"wait", nullptr, false},  {"fetch", "object", true},
    {"flush", "object", true},     {"staging", nullptr, true}, {"setup", nullptr, false}, {"copy", nullptr, true},
    {"stream", "transfers", true}, {"kernel", nullptr, false},
};

constexpr int kFirstStream = (1 << 22) + 1;  // thread ids end at 2^22 (proc(5), pid_max)

struct Track {
    std::string name;
    std::vector<Record> records;
};
using Tracks = std::map<int, Track>;

class File {
public:
    explicit File(int fd) : fd_(fd) {}
    std::string& text() { return text_; }
    // Whether all writes have succeeded so far.
    bool flush(std::size_t from = 0) {
        if (text_.size() >= from) {
            good_ = good_ && write_all(fd_, text_);
            text_.clear();
        }
        return good_;
    }

private:
    int fd_;
    bool good_ = true;
    std::string text_;
};

// Of the process or of a thread, while it lives.
std::string name_in(const std::string& file) {
    char name[17] = {};
    const auto length = std::max(kernel::File(file.c_str()).read(name, sizeof name - 1), 1L);
    return {name, static_cast<std::size_t>(length - 1)};  // a newline ends it
}
std::string name_of_thread(int thread, const char* recorded) {
    const auto now = name_in(fmt::format("/proc/self/task/{}/comm", thread));
    return now.empty() ? recorded : now;
}

// Contexts and streams, numbered in the order in which they appear.
template <class Key>
class Numbers {
public:
    std::size_t operator()(const Key& key) { return numbers_.try_emplace(key, numbers_.size() + 1).first->second; }

private:
    std::map<Key, std::size_t> numbers_;
};

// Transfers that several threads made in one stream may overlap: then the stream needs several rows. Returns a free
// row.
std::size_t free_row(std::vector<std::uint64_t>& ends, const Record& record) {
    const auto free = std::find_if(ends.begin(), ends.end(), [&](auto end) { return end <= record.begin; });
    const auto row = static_cast<std::size_t>(free - ends.begin());
    if (free == ends.end()) ends.push_back(0);
    ends[row] = record.end;
    return row;
}

template <class Take>
void take_each(Take&& take) {
    for_each([](void* to, const Record& record, int thread,
                const char* name) { (*static_cast<std::remove_reference_t<Take>*>(to))(record, thread, name); },
             const_cast<void*>(static_cast<const void*>(&take)));
}

struct Counts {
    std::uint64_t records = 0, launches_without_times = 0;
};

// Every record on the track where it is shown, with its times in nanoseconds.
Tracks arrange(Counts& counts) {
    std::vector<ticks::Point> points{ticks::beginning, ticks::point()};
    take_each([&](const Record& record, int, const char*) {
        if (record.kind == Kind::Point) points.push_back({record.begin, record.end});
    });
    const ticks::Timescale timescale(std::move(points));

    Tracks tracks;
    std::vector<Record> streams;
    take_each([&](Record record, int thread, const char* name) {
        if (record.kind == Kind::Point) return;
        ++counts.records;
        if (record.kind == Kind::Call && record.flag) ++counts.launches_without_times;
        if (record.kind != Kind::Kernel) {
            record.begin = timescale.nanoseconds(record.begin);
            record.end = timescale.nanoseconds(record.end);
        }
        if (record.kind == Kind::Stream || record.kind == Kind::Kernel) {
            streams.push_back(record);
            return;
        }
        auto& track = tracks[thread];
        if (track.name.empty()) track.name = name_of_thread(thread, name);
        track.records.push_back(record);
    });

    std::stable_sort(streams.begin(), streams.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    Numbers<std::uint64_t> contexts;
    std::map<std::uint64_t, Numbers<std::uint64_t>> numbers;
    std::map<std::pair<std::uint64_t, bool>, std::vector<std::uint64_t>> rows;
    std::map<std::tuple<std::uint64_t, Kind, std::uint64_t, std::uint64_t>, int> places;
    for (auto& record : streams) {
        const bool kernel = record.kind == Kind::Kernel;
        const auto row = kernel ? 0 : free_row(rows[{record.place, record.flag}], record);
        const auto which = kernel ? record.stream : static_cast<std::uint64_t>(record.flag);
        const auto more = kernel ? record.number : row;
        const auto [place, fresh] = places.try_emplace({record.place, record.kind, which, more},
                                                       kFirstStream + static_cast<int>(places.size()));
        auto& track = tracks[place->second];
        if (fresh) {
            track.name = fmt::format("context {}: ", contexts(record.place));
            if (!kernel) {
                track.name += fmt::format("libhpe {}{}", record.name, row == 0 ? "" : fmt::format(" ({})", row + 1));
            } else if (record.number != 0) {
                track.name += fmt::format("default stream of thread {}", record.number);
            } else if (record.stream == kernel_times::kDefaultStream) {
                track.name += "default stream";
            } else {
                track.name += fmt::format("stream {}", numbers[record.place](record.stream));
            }
        }
        track.records.push_back(record);
    }
    for (auto& [id, track] : tracks) {
        // Of records that begin together the longest comes first.
        std::stable_sort(track.records.begin(), track.records.end(), [](const auto& a, const auto& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
        });
        if (id < kFirstStream) continue;
        // The device's clock is mapped to the host's with an error of some microseconds, and two threads that launch at
        // once record their events in any order: in a stream one follows the other all the same.
        std::uint64_t last = 0;
        for (auto& record : track.records) {
            record.begin = std::max(record.begin, last);
            record.end = last = std::max(record.end, record.begin);
        }
    }
    return tracks;
}

void append_time(std::string& out, std::uint64_t nanoseconds) {
    fmt::format_to(std::back_inserter(out), "{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string name_event(int process, int track, const char* what, const std::string& name) {
    return fmt::format("{{\"ph\": \"M\", \"pid\": {}, \"tid\": {}, \"name\": \"{}\", \"args\": {{\"name\": {}}}}}",
                       process, track, what, json_text(name));
}

// Names as JSON strings. Most records of one name share its pointer.
class Names {
public:
    const std::string& operator()(const Record& record) {
        const auto [place, fresh] = texts_.try_emplace(record.name);
        if (fresh) place->second = json_text(record.kind == Kind::Kernel ? demangled(record.name) : record.name);
        return place->second;
    }

private:
    std::unordered_map<const char*, std::string> texts_;
};

// Stacks as JSON strings; most records share one.
class Stacks {
public:
    // nullptr: the record has none.
    const std::string* operator()(const Record& record) {
        if (record.ticket == 0) return nullptr;
        const auto [place, fresh] = texts_.try_emplace(record.ticket);
        if (fresh) {
            const auto text = call_stacks::text_of(record.ticket);
            if (!text.empty()) place->second = json_text(text);
        }
        return place->second.empty() ? nullptr : &place->second;
    }

private:
    std::unordered_map<std::uint64_t, std::string> texts_;
};

void append_event(std::string& out, int process, int track, const Record& r, const std::string& title, Stacks& stacks) {
    const auto& category = kCategories[static_cast<std::size_t>(r.kind)];
    fmt::format_to(std::back_inserter(out), ",\n{{\"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": ", process, track);
    append_time(out, r.begin);
    out += ", \"dur\": ";
    append_time(out, r.end - r.begin);
    fmt::format_to(std::back_inserter(out), ", \"cat\": \"{}\", \"name\": {}, \"args\": {{", category.name, title);
    const char* separator = "";
    const auto argument = [&](const char* name, auto&& value) {
        fmt::format_to(std::back_inserter(out), "{}\"{}\": {}", separator, name, value);
        separator = ", ";
    };
    if (category.bytes || r.bytes != 0) argument("bytes", r.bytes);
    if (category.number != nullptr && r.number != 0) argument(category.number, r.number);
    if (r.kind == Kind::Fault) argument("address", fmt::format("\"{:#x}\"", r.place));
    if (r.failed) argument("failed", "true");
    if (const auto* stack = stacks(r)) argument("stack", *stack);
    out += "}}";
}

bool write_to(int fd) {
    Counts kept;
    const auto tracks = arrange(kept);
    const auto process = static_cast<int>(getpid());
    File file(fd);
    Names names;
    Stacks stacks;
    auto& out = file.text();
    out += "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
    out += name_event(process, process, "process_name", name_in("/proc/self/comm"));
    for (const auto& [id, track] : tracks) {
        out += ",\n" + name_event(process, id, "thread_name", track.name);
        for (const auto& record : track.records) {
            append_event(out, process, id, record, names(record), stacks);
            if (!file.flush(std::size_t{1} << 20)) return false;
        }
    }
    fmt::format_to(
        std::back_inserter(out),
        "\n],\n\"otherData\": {{\"events\": {}, \"events_dropped\": {}, \"launches_without_times\": {}}}}}\n",
        kept.records, dropped(), kept.launches_without_times + kernel_times::lost());
    if (const auto missing = dropped(); missing != 0) {
        log::warn("the timeline is full: of {} events it has the first {}", kept.records + missing, kept.records);
    }
    return file.flush();
}

std::string& destination() {
    static NeverDestroyed<std::string> text;
    return *text;
}

}  // namespace

void configure(const std::string& wanted) {
    destination() = from_this_folder(wanted);
    if (!wanted.empty()) ticks::choose();
    enabled.store(!wanted.empty(), std::memory_order_relaxed);
}

void write() noexcept try {
    if (!enabled.exchange(false, std::memory_order_acq_rel)) return;
    const auto path = path_of_output(destination());
    const int fd = open_output(path);
    if (fd < 0 || !write_to(fd)) log::error("cannot write the timeline to {}: {}", path, std::strerror(errno));
    if (fd >= 0) close(fd);
} catch (const std::exception& problem) {
    log::error("cannot write the timeline: {}", problem.what());
}

}  // namespace hpe::trace
