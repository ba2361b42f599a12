// SPDX-License-Identifier: MIT
// The gate of the driver: life of the process, injected faults (HPE_SOFT_FAIL), counting of calls (HPE_SOFT_COUNT).
#include "toolchain/softgpu/driver/base/call.h"

#include <pthread.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "toolchain/softgpu/driver/base/counts.h"
#include "toolchain/softgpu/driver/base/exports.h"
#include "toolchain/softgpu/exec/exec.h"

namespace hpe::soft {
namespace {

std::atomic<Life> the_life{Life::Unborn};
std::atomic<unsigned> calls[function_count];
std::atomic<bool> mentioned[function_count];

thread_local bool per_thread = false;
thread_local int callback_depth = 0;

struct Injection {
    unsigned function;
    unsigned nth;  // 0: every call
    CUresult error;
};
// Never freed: calls may come until the very end of the process.
std::vector<Injection>* injections = nullptr;
const char* count_file = nullptr;
pthread_once_t parsed = PTHREAD_ONCE_INIT;

unsigned function_index(const char* name, std::size_t length) {
    for (unsigned i = 0; i < function_count; ++i)
        if (std::strlen(function_names[i]) == length && !std::strncmp(function_names[i], name, length)) return i;
    return function_count;
}

void bad_rule(const char* rule, std::size_t length) {
    complain("HPE_SOFT_FAIL: '%.*s' ignored; accepted is name:N:error or name:*:error, separated by commas",
             static_cast<int>(length), rule);
}

void parse_injections(const char* text) {
    while (*text) {
        const std::size_t length = std::strcspn(text, ",");
        const char* colon = static_cast<const char*>(std::memchr(text, ':', length));
        Injection rule{function_count, 0, CUDA_SUCCESS};
        bool good = false;
        if (colon) {
            rule.function = function_index(text, static_cast<std::size_t>(colon - text));
            char* end = nullptr;
            if (colon[1] == '*')
                end = const_cast<char*>(colon + 2);
            else if (colon[1] >= '1' && colon[1] <= '9')
                rule.nth = static_cast<unsigned>(std::strtoul(colon + 1, &end, 10));
            if (end && *end == ':') {
                char* last = nullptr;
                const long error = std::strtol(end + 1, &last, 10);
                rule.error = static_cast<CUresult>(error);
                good = rule.function < function_count && last == text + length && error > 0 && error < 1000;
            }
        }
        if (good)
            injections->push_back(rule);
        else if (length)
            bad_rule(text, length);
        text += length;
        if (*text == ',') ++text;
    }
}

void parse() {
    if (const char* text = std::getenv("HPE_SOFT_FAIL"); text && *text) {
        injections = new std::vector<Injection>;
        parse_injections(text);
    }
    if (const char* file = std::getenv("HPE_SOFT_COUNT"); file && *file) count_file = strdup(file);
}

CUresult admission(Function function) noexcept {
    const auto index = static_cast<unsigned>(function);
    pthread_once(&parsed, parse);
    const unsigned number = calls[index].fetch_add(1, std::memory_order_relaxed) + 1;
    if (function_always[index]) {
        if (function == Function::cuInit && life() == Life::Forked) return CUDA_ERROR_NOT_INITIALIZED;
        if (function == Function::cuInit && life() == Life::TornDown) return CUDA_ERROR_DEINITIALIZED;
    } else {
        switch (life()) {
            case Life::Unborn:
            case Life::Forked: return CUDA_ERROR_NOT_INITIALIZED;
            case Life::TornDown: return CUDA_ERROR_DEINITIALIZED;
            case Life::Ready: break;
        }
        if (callback_depth > 0) return CUDA_ERROR_NOT_PERMITTED;
    }
    if (injections)
        for (const Injection& rule : *injections)
            if (rule.function == index && (rule.nth == 0 || rule.nth == number)) return rule.error;
    return CUDA_SUCCESS;
}

// The application's own destructors have run by now; what still calls the driver gets DEINITIALIZED.
__attribute__((destructor)) void tear_down() {
    if (count_file && life() != Life::Forked) {
        if (FILE* out = std::fopen(count_file, "w")) {
            for (unsigned i = 0; i < function_count; ++i)
                if (const unsigned n = calls[i].load()) std::fprintf(out, "%s %u\n", function_names[i], n);
            std::fprintf(out, "# thread instructions %llu\n", static_cast<unsigned long long>(executed_instructions()));
            std::fprintf(out, "# bytes between devices %llu directly %llu through the host\n",
                         static_cast<unsigned long long>(peer_bytes.direct.load()),
                         static_cast<unsigned long long>(peer_bytes.through_host.load()));
            std::fclose(out);
        }
    }
    if (life() == Life::Ready) set_life(Life::TornDown);
}

}  // namespace

void complain(const char* format, ...) {
    char line[1024];
    int n = std::snprintf(line, sizeof line, "hpe-soft: ");
    va_list arguments;
    va_start(arguments, format);
    n += std::vsnprintf(line + n, sizeof line - static_cast<std::size_t>(n) - 1, format, arguments);
    va_end(arguments);
    if (n > static_cast<int>(sizeof line) - 2) n = static_cast<int>(sizeof line) - 2;
    line[n] = '\n';
    std::fwrite(line, 1, static_cast<std::size_t>(n) + 1, stderr);
}

Call::Call(Function function, bool per_thread_stream) noexcept
    : refusal_(admission(function)), outer_per_thread_(per_thread) {
    per_thread = per_thread_stream;
}
Call::~Call() { per_thread = outer_per_thread_; }
bool Call::per_thread_default_stream() noexcept { return per_thread; }

InCallback::InCallback() noexcept { ++callback_depth; }
InCallback::~InCallback() { --callback_depth; }

void set_life(Life state) noexcept { the_life.store(state, std::memory_order_release); }
Life life() noexcept { return the_life.load(std::memory_order_acquire); }

CUresult not_supported(const char* what) noexcept {
    // `what` may carry a version suffix; one line per base name is enough, so look for the longest base it starts with.
    unsigned best = function_count;
    for (unsigned i = 0; i < function_count; ++i)
        if (!std::strncmp(what, function_names[i], std::strlen(function_names[i])) &&
            (best == function_count || std::strlen(function_names[i]) > std::strlen(function_names[best])))
            best = i;
    if (best == function_count || !mentioned[best].exchange(true))
        complain("%s is not supported by the soft device", what);
    return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace hpe::soft
