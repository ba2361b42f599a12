// SPDX-License-Identifier: MIT
// A device memory and launches for tests of the executor, without a driver.
#pragma once

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "toolchain/softgpu/exec/exec.h"

namespace exec_test {

using namespace hpe::soft;

// Device addresses differ from host addresses, so that a translation left out is a fault and not a lucky hit.
class Memory final : public AddressSpace {
public:
    bool find(std::uint64_t address, Range& out) const noexcept override {
        for (const Range& r : ranges_)
            if (address >= r.begin && address < r.end) {
                out = r;
                return true;
            }
        return false;
    }
    std::uint64_t reserve(std::size_t bytes, bool writable = true) {
        storage_.emplace_back(bytes + 1);
        const std::uint64_t begin = next_;
        next_ += (bytes + 4095) / 4096 * 4096 + 4096;
        ranges_.push_back({begin, begin + bytes, storage_.back().data(), writable});
        return begin;
    }
    template <class T>
    std::uint64_t put(const std::vector<T>& v) {
        const std::uint64_t at = reserve(v.size() * sizeof(T));
        std::memcpy(ranges_.back().host, v.data(), v.size() * sizeof(T));
        return at;
    }
    template <class T>
    std::vector<T> get(std::uint64_t at, std::size_t count) const {
        std::vector<T> v(count);
        std::memcpy(v.data(), host(at), count * sizeof(T));
        return v;
    }
    std::byte* host(std::uint64_t at) const {
        Range r;
        if (!find(at, r)) throw std::runtime_error("no such device address");
        return r.host + (at - r.begin);
    }

private:
    std::list<std::vector<std::byte>> storage_;
    std::vector<Range> ranges_;
    std::uint64_t next_ = 0x7100000000;
};

struct Device {
    Memory memory;
    std::shared_ptr<Program> program;

    static std::string file(const std::string& path) {
        std::ifstream in(path);
        if (!in) throw std::runtime_error("cannot read " + path);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    void load(const std::string& ptx) {
        Failure failure;
        program = Program::load(ptx, failure);
        if (program == nullptr) throw std::runtime_error(failure.message);
        std::vector<std::pair<const Variable*, std::uint64_t>> placed;
        for (const Variable& v : program->variables()) {
            const std::uint64_t at = memory.reserve(v.size + 16);
            if (!v.initial.empty()) std::memcpy(memory.host(at), v.initial.data(), v.initial.size());
            program->place(v.name, at);
            placed.emplace_back(&v, at);
        }
        for (const auto& [v, at] : placed)
            for (const Relocation& r : v->relocations) {
                std::uint64_t target = program->code_address(r.symbol);
                for (const auto& [other, where] : placed)
                    if (other->name == r.symbol) target = where;
                target += static_cast<std::uint64_t>(r.addend);
                std::memcpy(memory.host(at + r.offset), &target, 8);
            }
        addresses = placed;
    }
    std::uint64_t variable(const std::string& name) const {
        for (const auto& [v, at] : addresses)
            if (v->name == name) return at;
        throw std::runtime_error("no variable " + name);
    }

    template <class... A>
    Failure launch(const std::string& kernel, Dim3 grid, Dim3 block, std::uint32_t shared, bool cooperative, A... a) {
        Failure failure;
        const KernelInfo* info = program->prepare(kernel, failure);
        if (info == nullptr) return failure;
        std::vector<std::byte> parameters(info->parameter_bytes);
        std::size_t n = 0;
        [[maybe_unused]] const auto put = [&](auto v) {
            if (n >= info->parameters.size() || info->parameters[n].size != sizeof v)
                throw std::runtime_error("a wrong argument of " + kernel);
            std::memcpy(parameters.data() + info->parameters[n++].offset, &v, sizeof v);
        };
        (put(a), ...);
        Launch l;
        l.grid = grid;
        l.block = block;
        l.dynamic_shared_bytes = shared;
        l.cooperative = cooperative;
        l.parameters = parameters;
        return program->run(kernel, l, memory);
    }
    template <class... A>
    Failure run(const std::string& kernel, Dim3 grid, Dim3 block, A... a) {
        return launch(kernel, grid, block, 0, false, a...);
    }

    std::vector<std::pair<const Variable*, std::uint64_t>> addresses;
};

}  // namespace exec_test
