// SPDX-License-Identifier: MIT
// The options of cuModuleLoadDataEx, cuLibraryLoadData and cuLink*: what they ask for, and what they are told (CUDA
// Driver API, "Module Management", CUjit_option).
//
// The arrays and buffers are the application's and must outlive this. One thread at a time. Errors: exceptions of type
// Error (call.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "toolchain/softgpu/driver/base/abi.h"

namespace hpe::ptx {
struct Module;
}

namespace hpe::soft {

// Addresses of the host that stand for variables which a module leaves undefined.
using HostSymbols = std::map<std::string, std::uint64_t, std::less<>>;

class JitOptions {
public:
    enum class Use { Load, Link, Input };  // Input: of one input of a link, which may not have options with an answer
    JitOptions() = default;
    // Throws INVALID_VALUE.
    JitOptions(Use use, unsigned count, const CUjit_option* names, void* const* values);

    void inform(const std::string& line);  // if verbose
    void report(const std::string& line);
    void spent(std::chrono::duration<float, std::milli> time);

    // Whether the code that the module's text becomes is asked to differ from what it says itself; and makes it so.
    bool changes_code() const { return registers_ != 0; }
    void apply_to(ptx::Module& module) const;

    const HostSymbols& symbols() const { return symbols_; }
    int target() const { return target_; }  // 75; 0: that of the device

private:
    struct Log {
        char* buffer = nullptr;
        void** size_slot = nullptr;
        std::size_t size = 0, filled = 0;
        void append(const std::string& line);
        void tell() const;
    };
    Log info_, error_;
    void** time_slot_ = nullptr;
    float milliseconds_ = 0;
    bool verbose_ = false, override_directives_ = false;
    unsigned registers_ = 0;  // per thread, at most; 0: no limit
    int target_ = 0;
    HostSymbols symbols_;
};

}  // namespace hpe::soft
