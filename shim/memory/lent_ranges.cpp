// SPDX-License-Identifier: MIT
// A list behind one lock: few messages are under way at once.
#include "shim/memory/lent_ranges.h"

#include <algorithm>
#include <new>
#include <vector>

#include "shim/base/mutex.h"
#include "shim/base/never_destroyed.h"

namespace hpe::lent_ranges {

namespace {
struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    bool operator==(const Range&) const = default;
};
constinit Mutex mutex;
unsigned not_remembered HPE_GUARDED_BY(mutex) = 0;
std::vector<Range>& ranges() HPE_REQUIRES(mutex) {
    static NeverDestroyed<std::vector<Range>> all;
    return *all;
}
}  // namespace

void add(std::uintptr_t begin, std::size_t bytes) noexcept {
    const Locked lock(mutex);
    try {
        ranges().push_back({begin, bytes});
    } catch (const std::bad_alloc&) {
        ++not_remembered;
    }
}

void remove(std::uintptr_t begin, std::size_t bytes) noexcept {
    const Locked lock(mutex);
    auto& all = ranges();
    const auto found = std::find(all.begin(), all.end(), Range{begin, bytes});
    if (found != all.end()) {
        all.erase(found);
    } else if (not_remembered != 0) {
        --not_remembered;
    }
}

bool overlap(std::uintptr_t begin, std::size_t bytes) noexcept {
    const Locked lock(mutex);
    return not_remembered != 0 || std::any_of(ranges().begin(), ranges().end(), [&](const Range& one) {
               return one.begin < begin + bytes && begin < one.begin + one.bytes;
           });
}

}  // namespace hpe::lent_ranges
