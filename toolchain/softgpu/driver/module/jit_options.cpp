// SPDX-License-Identifier: MIT
// Reads the options of loading and linking. Options about speed alone are checked and have no effect.
#include "toolchain/softgpu/driver/module/jit_options.h"

#include <algorithm>
#include <cstring>

#include "toolchain/ptx/ast.h"
#include "toolchain/softgpu/driver/base/call.h"
#include "toolchain/softgpu/driver/device/device.h"

namespace hpe::soft {
namespace {

constexpr unsigned most_registers = 255;

// Numbers are passed in the pointer itself.
std::size_t number(const void* value) { return reinterpret_cast<std::size_t>(value); }
unsigned small_number(const void* value) { return static_cast<unsigned>(number(value)); }

void put_number(void** slot, std::size_t value) { *slot = reinterpret_cast<void*>(value); }

}  // namespace

JitOptions::JitOptions(Use use, unsigned count, const CUjit_option* names, void* const* given) {
    require(count == 0 || (names != nullptr && given != nullptr));
    const char* const* symbol_names = nullptr;
    void* const* symbol_addresses = nullptr;
    std::size_t symbol_count = 0;
    unsigned threads = 0;
    bool has_target = false;
    // Some options are answered in their place.
    void** const values = const_cast<void**>(given);
    for (unsigned i = 0; i < count; ++i) {
        void* const value = values[i];
        switch (names[i]) {
            case CU_JIT_WALL_TIME: require(use != Use::Input), time_slot_ = &values[i]; break;
            case CU_JIT_INFO_LOG_BUFFER:
                require(use != Use::Input);
                info_.buffer = static_cast<char*>(value);
                break;
            case CU_JIT_ERROR_LOG_BUFFER:
                require(use != Use::Input);
                error_.buffer = static_cast<char*>(value);
                break;
            case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
                info_.size_slot = &values[i];
                info_.size = small_number(value);
                break;
            case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
                error_.size_slot = &values[i];
                error_.size = small_number(value);
                break;
            case CU_JIT_MAX_REGISTERS:
                // 0 is what the compilers take for no limit.
                if (value != nullptr)
                    registers_ = std::min(registers_ ? registers_ : most_registers, small_number(value));
                break;
            case CU_JIT_THREADS_PER_BLOCK:
                // Compiled for exactly so many: the answer is the number itself.
                threads = small_number(value);
                require(threads > 0 && threads <= max_threads_per_block);
                registers_ = std::min(registers_ ? registers_ : most_registers, registers_per_block / threads);
                break;
            case CU_JIT_TARGET:
                require(use != Use::Input && small_number(value) >= CU_TARGET_COMPUTE_30);
                target_ = static_cast<int>(small_number(value) & 0xffff);  // above: marks of a family of devices
                has_target = true;
                break;
            case CU_JIT_TARGET_FROM_CUCONTEXT: require(use != Use::Input); break;
            case CU_JIT_OPTIMIZATION_LEVEL: require(small_number(value) <= 4); break;
            case CU_JIT_FALLBACK_STRATEGY: require(use == Use::Load && small_number(value) <= CU_PREFER_BINARY); break;
            case CU_JIT_CACHE_MODE: require(small_number(value) <= CU_JIT_CACHE_OPTION_CA); break;
            case CU_JIT_LOG_VERBOSE: verbose_ = small_number(value) != 0; break;
            case CU_JIT_OVERRIDE_DIRECTIVE_VALUES: override_directives_ = small_number(value) != 0; break;
            case CU_JIT_GLOBAL_SYMBOL_NAMES: symbol_names = static_cast<const char* const*>(value); break;
            case CU_JIT_GLOBAL_SYMBOL_ADDRESSES: symbol_addresses = static_cast<void* const*>(value); break;
            case CU_JIT_GLOBAL_SYMBOL_COUNT: symbol_count = small_number(value); break;
            default: require(names[i] >= CU_JIT_MAX_REGISTERS && names[i] < CU_JIT_NUM_OPTIONS);
        }
    }
    require(!(threads != 0 && has_target));
    require(symbol_count == 0 || (symbol_names != nullptr && symbol_addresses != nullptr));
    for (std::size_t i = 0; i < symbol_count; ++i) {
        require(symbol_names[i] != nullptr);
        const auto address = reinterpret_cast<std::uint64_t>(symbol_addresses[i]);
        const auto [at, fresh] = symbols_.emplace(symbol_names[i], address);
        require(fresh || at->second == address);
    }
    for (Log* log : {&info_, &error_}) {
        if (log->buffer != nullptr && log->size > 0) log->buffer[0] = 0;
        log->tell();
    }
    if (time_slot_ != nullptr) spent({});
}

void JitOptions::Log::append(const std::string& line) {
    // The last byte ends the text.
    if (buffer != nullptr && size > filled + 1) {
        const std::string text = filled == 0 ? line : "\n" + line;
        const std::size_t part = std::min(text.size(), size - 1 - filled);
        std::memcpy(buffer + filled, text.data(), part);
        filled += part;
        buffer[filled] = 0;
    }
    tell();
}
void JitOptions::Log::tell() const {
    if (size_slot != nullptr) put_number(size_slot, filled);
}

void JitOptions::inform(const std::string& line) {
    if (verbose_) info_.append(line);
}
void JitOptions::report(const std::string& line) { error_.append(line); }

void JitOptions::spent(std::chrono::duration<float, std::milli> time) {
    milliseconds_ += time.count();
    if (time_slot_ == nullptr) return;
    *time_slot_ = nullptr;
    std::memcpy(time_slot_, &milliseconds_, sizeof milliseconds_);
}

void JitOptions::apply_to(ptx::Module& module) const {
    if (registers_ == 0) return;
    for (ptx::Item& item : module.items) {
        auto* function = std::get_if<ptx::Function>(&item);
        if (function == nullptr || !function->entry || !function->defined) continue;
        auto& directives = function->directives;
        if (function->directive("maxnreg") != nullptr && !override_directives_) continue;
        std::erase_if(directives, [](const ptx::Directive& d) { return d.name == "maxnreg"; });
        ptx::Directive limit;
        limit.name = "maxnreg";
        limit.words = {std::to_string(registers_)};
        limit.semicolon = false;
        directives.push_back(std::move(limit));
    }
}

}  // namespace hpe::soft
