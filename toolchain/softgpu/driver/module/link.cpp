// SPDX-License-Identifier: MIT
// cuLink*: PTX of several inputs becomes one image, which is PTX again. Machine code cannot be an input.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <vector>

#include "toolchain/ptx/link.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"
#include "toolchain/softgpu/driver/context/current.h"
#include "toolchain/softgpu/driver/device/driver.h"
#include "toolchain/softgpu/driver/module/image.h"
#include "toolchain/softgpu/driver/module/jit_options.h"

namespace hpe::soft {
namespace {

// A pending link. As with CUDA's, one thread at a time.
struct LinkState {
    explicit LinkState(JitOptions its_options) : options(std::move(its_options)) {}
    JitOptions options;
    std::vector<ptx::LinkInput> inputs;
    std::string image;  // once complete
    bool complete = false;
};

Registry<LinkState>& links() {
    static auto* all = new Registry<LinkState>;
    return *all;
}

std::shared_ptr<LinkState> link_of(CUlinkState handle) {
    auto state = links().find(handle);
    require(state != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return state;
}

// Adds up the time of one call.
class Timer {
public:
    explicit Timer(JitOptions& options) : options_(options) {}
    ~Timer() { options_.spent(Clock::now() - start_); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

private:
    JitOptions& options_;
    const Clock::time_point start_ = Clock::now();
};

const char* name_of(CUjitInputType type) {
    switch (type) {
        case CU_JIT_INPUT_CUBIN: return "a cubin";
        case CU_JIT_INPUT_OBJECT: return "an object file";
        case CU_JIT_INPUT_LIBRARY: return "a library of object files";
        default: return "NVVM code";
    }
}

[[noreturn]] void refuse(LinkState& state, CUresult code, const std::string& why) {
    complain("link: %s", why.c_str());
    state.options.report(why);
    fail(code);
}

// The linker's words in those of NVIDIA's, line by line: "error   : Undefined reference to ...".
[[noreturn]] void refuse_link(LinkState& state, const std::string& why) {
    std::string told;
    for (std::size_t at = 0; at < why.size();) {
        const std::size_t end = std::min(why.find('\n', at), why.size());
        std::string line = why.substr(at, end - at);
        line[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(line[0])));
        told += (told.empty() ? "error   : " : "\nerror   : ") + line;
        at = end + 1;
    }
    refuse(state, CUDA_ERROR_INVALID_SOURCE, told);
}

CUresult add(CUlinkState handle, CUjitInputType type, const void* data, std::size_t size, const char* name,
             unsigned count, const CUjit_option* names, void* const* values) {
    const auto state = link_of(handle);
    require(data != nullptr && size > 0 && !state->complete);
    require(type >= CU_JIT_INPUT_CUBIN && type < CU_JIT_NUM_INPUT_TYPES);
    const JitOptions own(JitOptions::Use::Input, count, names, values);
    const Timer timer(state->options);
    const std::string called = name && *name ? name : "input " + std::to_string(state->inputs.size() + 1);
    if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
        const std::string what = "cuLinkAddData of " + std::string(name_of(type));
        state->options.report(called + ": " + what + " is not supported");
        return not_supported(what.c_str());
    }
    std::string text, why;
    try {
        // PTX may be shorter than its stated size, and need not end where that says.
        if (type == CU_JIT_INPUT_PTX)
            text.assign(static_cast<const char*>(data), strnlen(static_cast<const char*>(data), size));
        text = ptx_of(type == CU_JIT_INPUT_PTX ? text.c_str() : data, why).text;
    } catch (const Error& error) {
        refuse(*state, error.code, called + ": " + why);
    }
    auto module = ptx::parse(text, why);
    if (!module || !ptx::verify(*module, why)) refuse(*state, CUDA_ERROR_INVALID_PTX, called + ": PTX " + why);
    const int most = state->options.target();
    if (most != 0 && module->target_arch() > most)
        refuse(*state, CUDA_ERROR_INVALID_PTX,
               called + ": PTX is for sm_" + std::to_string(module->target_arch()) + ", to be linked for sm_" +
                   std::to_string(most));
    (own.changes_code() ? own : state->options).apply_to(*module);
    state->options.inform(called + ": PTX for sm_" + std::to_string(module->target_arch()));
    state->inputs.push_back({std::move(module), called});
    if (!ptx::fits(state->inputs, why)) {
        state->inputs.pop_back();
        refuse_link(*state, why);
    }
    return CUDA_SUCCESS;
}

CUresult add_file(CUlinkState handle, CUjitInputType type, const char* path, unsigned count, const CUjit_option* names,
                  void* const* values) {
    link_of(handle);
    const std::string bytes = read_file(path);
    return add(handle, type, bytes.data(), bytes.size(), path, count, names, values);
}

}  // namespace

CUresult api::cuLinkCreate_v2(unsigned count, CUjit_option* names, void** values, CUlinkState* out) {
    require(out != nullptr);
    current();
    auto state = std::make_shared<LinkState>(JitOptions(JitOptions::Use::Link, count, names, values));
    *out = reinterpret_cast<CUlinkState>(state.get());
    links().add(std::move(state));
    return CUDA_SUCCESS;
}
CUresult api::cuLinkCreate(unsigned count, CUjit_option* names, void** values, CUlinkState* out) {
    return api::cuLinkCreate_v2(count, names, values, out);
}

CUresult api::cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                               unsigned count, CUjit_option* names, void** values) {
    return add(state, type, data, size, name, count, names, values);
}
CUresult api::cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size, const char* name,
                            unsigned count, CUjit_option* names, void** values) {
    return add(state, type, data, size, name, count, names, values);
}
CUresult api::cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                               CUjit_option* names, void** values) {
    return add_file(state, type, path, count, names, values);
}
CUresult api::cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                            CUjit_option* names, void** values) {
    return add_file(state, type, path, count, names, values);
}

CUresult api::cuLinkComplete(CUlinkState handle, void** image, size_t* size) {
    const auto state = link_of(handle);
    require(image != nullptr);
    require(!state->complete, CUDA_ERROR_INVALID_HANDLE);
    const Timer timer(state->options);
    if (state->inputs.empty()) {
        state->image = ".version 6.4\n.target sm_" + std::to_string(capability().number) + "\n.address_size 64\n";
        state->complete = true;
        *image = state->image.data();
        if (size) *size = state->image.size() + 1;
        return CUDA_SUCCESS;
    }
    std::string why;
    const HostSymbols& given = state->options.symbols();
    const auto linked = ptx::link(
        std::move(state->inputs),
        [&](const std::string& name) { return is_device_function(name) || given.contains(name); }, why);
    state->inputs.clear();
    if (!linked) refuse_link(*state, why);
    state->image = ptx::print(*linked);
    state->complete = true;
    state->options.inform("linked");
    *image = state->image.data();
    if (size) *size = state->image.size() + 1;
    return CUDA_SUCCESS;
}

CUresult api::cuLinkDestroy(CUlinkState handle) {
    require(links().remove(handle) != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

}  // namespace hpe::soft
