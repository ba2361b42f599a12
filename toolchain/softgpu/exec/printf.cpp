// SPDX-License-Identifier: MIT
// What kernels call and no module defines: printf, assert, malloc and free. What is printed is kept until the launch
// ends.
#include <cinttypes>
#include <cstdio>

#include "toolchain/softgpu/exec/handlers.h"
#include "toolchain/softgpu/exec/memory.h"

namespace hpe::soft::exec {
namespace {

constexpr std::size_t longest_string = 1 << 16;

bool read(Warp& w, unsigned lane, std::uint64_t address, void* to, std::uint32_t bytes) {
    auto* out = static_cast<std::byte*>(to);
    for (std::uint32_t n = 0; n < bytes; n++) {
        const std::byte* from = find_lane(w, lane, address + n, {Memory::Generic, 1, false});
        if (from == nullptr) return false;
        out[n] = *from;
    }
    return true;
}

bool read_string(Warp& w, unsigned lane, std::uint64_t address, std::string& out) {
    out.clear();
    for (char c = 0; out.size() < longest_string; out += c) {
        if (!read(w, lane, address + out.size(), &c, 1)) return false;
        if (c == 0) return true;
    }
    return true;
}

// The arguments as the compiler packs them: each aligned to its size.
struct Arguments {
    Warp& w;
    unsigned lane;
    std::uint64_t at;
    bool ok = true;
    std::int32_t taken = 0;
    template <class T>
    T next() {
        taken++;
        at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        T v{};
        if (!read(w, lane, at, &v, sizeof v)) ok = false;
        at += sizeof v;
        return v;
    }
};

template <class... T>
void append(std::string& out, const std::string& format, T... value) {
    char small[128];
    // The format is one conversion that format() below has taken apart and checked.
    const int n = std::snprintf(small, sizeof small, format.c_str(), value...);
    if (n < 0) return;
    if (static_cast<std::size_t>(n) < sizeof small) {
        out.append(small, static_cast<std::size_t>(n));
        return;
    }
    std::string big(static_cast<std::size_t>(n) + 1, '\0');
    std::snprintf(big.data(), big.size(), format.c_str(), value...);
    big.pop_back();
    out += big;
}

bool format(Warp& w, unsigned lane, const std::string& text, Arguments& arguments, std::string& out) {
    for (std::size_t n = 0; n < text.size(); n++) {
        if (text[n] != '%') {
            out += text[n];
            continue;
        }
        std::string spec = "%";
        n++;
        const auto number = [&] {
            if (n < text.size() && text[n] == '*') {
                spec += std::to_string(arguments.next<std::int32_t>());
                n++;
            }
            while (n < text.size() && text[n] >= '0' && text[n] <= '9' && spec.size() < 20) spec += text[n++];
        };
        while (n < text.size() && spec.size() < 8 && std::string("-+ #0").find(text[n]) != std::string::npos)
            spec += text[n++];
        number();
        if (n < text.size() && text[n] == '.') {
            spec += text[n++];
            number();
        }
        int longs = 0;
        while (n < text.size() && std::string("hlLzjt").find(text[n]) != std::string::npos) {
            longs += text[n] == 'l' || text[n] == 'z' || text[n] == 'j' || text[n] == 't' ? 1 : 0;
            n++;
        }
        if (n >= text.size()) return true;
        const char c = text[n];
        switch (c) {
            case '%': out += '%'; break;
            case 'd':
            case 'i':
                append(out, spec + PRId64,
                       longs != 0 ? arguments.next<std::int64_t>() : arguments.next<std::int32_t>());
                break;
            case 'u':
            case 'x':
            case 'X':
            case 'o':
                append(out, spec + "l" + c,
                       longs != 0 ? arguments.next<std::uint64_t>() : std::uint64_t{arguments.next<std::uint32_t>()});
                break;
            case 'c': append(out, spec + "c", arguments.next<std::int32_t>()); break;
            case 'p': append(out, "0x%" PRIx64, arguments.next<std::uint64_t>()); break;
            case 's': {
                std::string s;
                const auto address = arguments.next<std::uint64_t>();
                if (address == 0)
                    s = "(null)";
                else if (!read_string(w, lane, address, s))
                    return false;
                append(out, spec + "s", s.c_str());
                break;
            }
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G':
            case 'a':
            case 'A': append(out, spec + c, arguments.next<double>()); break;
            default: out += spec + c; break;
        }
        if (!arguments.ok) return false;
    }
    return true;
}

template <class T>
T parameter(Warp& w, std::uint64_t at, unsigned lane) {
    T v;
    std::memcpy(&v, w.local + local_offset(w.frame->local_base + at, lane), sizeof v);
    return v;
}

}  // namespace

// src[0], src[1]: where the two pointers are in local memory; src[2]: where the result goes; count 0: nowhere.
const Instr* run_vprintf(Warp& w, const Instr* i, std::uint32_t mask) {
    std::string text, line;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        Arguments arguments{w, l, parameter<std::uint64_t>(w, i->src[1], l)};
        line.clear();
        if (!read_string(w, l, parameter<std::uint64_t>(w, i->src[0], l), text) || !format(w, l, text, arguments, line))
            return fail(w, i, Fault::IllegalAddress, l, "printf: an argument is outside every allocation");
        w.block->worker->output += line;
        if (i->count == 0) continue;
        // On the device the result is the number of arguments.
        std::memcpy(w.local + local_offset(w.frame->local_base + i->src[2], l), &arguments.taken, sizeof(std::int32_t));
    }
    return i + 1;
}

// extras: where message, file, line, function and character size are. Every thread says its line on stderr, in the
// words of NVIDIA's driver, because programs' users look for them.
const Instr* run_assertfail(Warp& w, const Instr* i, std::uint32_t mask) {
    const std::uint32_t* at = w.frame->code->extras.data() + i->extra;
    const Dim3& block = w.block->id;
    std::string lines, what;
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        std::string message, file, function;
        read_string(w, l, parameter<std::uint64_t>(w, at[0], l), message);
        read_string(w, l, parameter<std::uint64_t>(w, at[1], l), file);
        read_string(w, l, parameter<std::uint64_t>(w, at[3], l), function);
        const std::string where = file + ":" + std::to_string(parameter<std::uint32_t>(w, at[2], l)) + ": " + function;
        const std::string failed = "Assertion `" + message + "` failed.";
        if (what.empty()) what = where + ": " + failed;
        char thread[128];
        std::snprintf(thread, sizeof thread, ": block: [%u,%u,%u], thread: [%u,%u,%u] ", block.x, block.y, block.z,
                      w.tid[0][l], w.tid[1][l], w.tid[2][l]);
        lines += where + thread + failed + "\n";
    }
    std::fwrite(lines.data(), 1, lines.size(), stderr);
    return fail(w, i, Fault::Assert, static_cast<unsigned>(__builtin_ctz(mask)), what);
}

// src[0]: where the argument is in local memory, src[1]: where the result goes.
const Instr* run_device_malloc(Warp& w, const Instr* i, std::uint32_t mask) {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        const std::uint64_t at = w.block->worker->memory->allocate(parameter<std::uint64_t>(w, i->src[0], l));
        std::memcpy(w.local + local_offset(w.frame->local_base + i->src[1], l), &at, sizeof at);
    }
    return i + 1;
}

const Instr* run_device_free(Warp& w, const Instr* i, std::uint32_t mask) {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        const auto at = parameter<std::uint64_t>(w, i->src[0], l);
        if (at != 0 && !w.block->worker->memory->release(at))
            return fail(w, i, Fault::IllegalAddress, l, "free of what malloc did not give");
    }
    return i + 1;
}

const Instr* run_set_conditional(Warp& w, const Instr* i, std::uint32_t mask) {
    for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const auto l = static_cast<unsigned>(__builtin_ctz(rest));
        const auto handle = parameter<std::uint64_t>(w, i->src[0], l);
        if (!w.block->worker->memory->set_conditional(handle, parameter<std::uint32_t>(w, i->src[1], l)))
            return fail(w, i, Fault::IllegalAddress, l, "a conditional handle that is not of the graph it runs in");
    }
    return i + 1;
}

}  // namespace hpe::soft::exec
