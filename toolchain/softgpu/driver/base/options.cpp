// SPDX-License-Identifier: MIT
// Reads and checks the HPE_SOFT_* variables.
#include "toolchain/softgpu/driver/base/options.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "toolchain/softgpu/driver/base/call.h"

namespace hpe::soft {
namespace {

// A number with an optional suffix K, M or G (powers of 1024).
bool number(const char* text, std::uint64_t& out, bool suffixes) {
    if (*text < '0' || *text > '9') return false;
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (errno) return false;
    unsigned shift = 0;
    if (suffixes && *end) {
        switch (*end++) {
            case 'k':
            case 'K': shift = 10; break;
            case 'm':
            case 'M': shift = 20; break;
            case 'g':
            case 'G': shift = 30; break;
            default: return false;
        }
    }
    if (*end || (value << shift) >> shift != value) return false;
    out = value << shift;
    return true;
}

bool read(const char* name, std::uint64_t& out, std::uint64_t least, std::uint64_t most, bool suffixes,
          const char* accepted) {
    const char* text = std::getenv(name);
    if (!text || !*text) return true;
    std::uint64_t value = 0;
    if (number(text, value, suffixes) && value >= least && value <= most) {
        out = value;
        return true;
    }
    complain("%s: '%s' is not accepted; accepted is %s", name, text, accepted);
    return false;
}

bool read(const char* name, bool& races) {
    const char* text = std::getenv(name);
    if (!text || !*text) return true;
    races = std::strcmp(text, "race") == 0;
    if (!races) complain("%s: '%s' is not accepted; accepted is race", name, text);
    return races;
}

bool read(const char* name, const Capability*& out) {
    const char* text = std::getenv(name);
    if (!text || !*text) return true;
    std::string accepted;
    for (const Capability& c : capabilities) {
        if (std::strcmp(c.name, text) == 0) {
            out = &c;
            return true;
        }
        accepted += accepted.empty() ? c.name : std::string(", ") + c.name;
    }
    complain("%s: '%s' is not accepted; accepted is one of %s", name, text, accepted.c_str());
    return false;
}

}  // namespace

bool read_options(Options& out) {
    std::uint64_t devices = out.devices, peer = 1, threads = out.threads;
    bool good = read("HPE_SOFT_DEVICES", devices, 1, 8, false, "a number from 1 to 8");
    good &= read("HPE_SOFT_MEMORY", out.memory, 4ull << 20, 1ull << 42, true,
                 "bytes from 4M to 4096G, with suffix K, M or G");
    good &= read("HPE_SOFT_PEER", peer, 0, 2, false, "0, 1 or 2");
    good &=
        read("HPE_SOFT_LINK", out.link, 0, 1ull << 50, true, "bytes per second, with suffix K, M or G; 0: no limit");
    good &= read("HPE_SOFT_PAGEABLE", out.pageable, 0, 1ull << 50, true,
                 "bytes per second, with suffix K, M or G; 0: as HPE_SOFT_LINK");
    good &= read("HPE_SOFT_LATENCY", out.latency, 0, 10'000'000, false, "microseconds from 0 to 10000000");
    good &=
        read("HPE_SOFT_DEVICE_LATENCY", out.device_latency, 0, 10'000'000, false, "microseconds from 0 to 10000000");
    good &= read("HPE_SOFT_QUEUE", out.queue, 0, 1u << 20, false, "a number from 0 (no limit) to 1048576");
    good &= read("HPE_SOFT_THREADS", threads, 0, 1024, false, "a number from 0 (one per core) to 1024");
    good &= read("HPE_SOFT_COMPUTE", out.capability);
    good &= read("HPE_SOFT_CHECK", out.races);
    out.devices = static_cast<unsigned>(devices);
    out.peer = peer != 0;
    out.peer_atomics = peer == 1;
    out.threads = static_cast<unsigned>(threads);
    return good;
}

}  // namespace hpe::soft
