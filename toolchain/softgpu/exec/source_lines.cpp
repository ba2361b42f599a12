// SPDX-License-Identifier: MIT
// Reads .file and .loc. Source: PTX ISA, "Debugging Directives".
#include "toolchain/softgpu/exec/source_lines.h"

#include <algorithm>

namespace hpe::soft::exec {

// While a function is read: the place that holds, and where code at a place was inlined. A chain of inlining is one
// .loc for each of its links, the outermost first.
struct SourceLines::Function {
    std::string place, outermost;
    std::unordered_map<std::string, std::string> outer;  // "file line column" to the same of the outermost
};

void SourceLines::read(const ptx::Module& module) {
    // .file stands behind the functions that name it.
    for (const auto& item : module.items) {
        const auto* d = std::get_if<ptx::Directive>(&item);
        if (d == nullptr || d->name != "file" || d->words.size() < 2) continue;
        std::string file = d->words[1];
        if (file.size() >= 2 && file.front() == '"' && file.back() == '"') file = file.substr(1, file.size() - 2);
        files_[d->words[0]] = file;
    }
    if (files_.empty()) return;
    for (const auto& item : module.items)
        if (const auto* f = std::get_if<ptx::Function>(&item); f != nullptr && f->defined) {
            Function function;
            read(f->body, function);
        }
}

// A .loc holds for the instructions up to the next one.
void SourceLines::read(const ptx::Scope& scope, Function& function) {
    for (const auto& statement : scope.statements) {
        if (const auto* i = std::get_if<ptx::Instruction>(&statement)) {
            if (!function.place.empty()) places_.emplace(i->line, function.place);
            if (!function.outermost.empty()) inlined_at_.emplace(i->line, function.outermost);
        } else if (const auto* inner = std::get_if<std::unique_ptr<ptx::Scope>>(&statement)) {
            read(**inner, function);
        } else if (const auto* d = std::get_if<ptx::Directive>(&statement); d != nullptr && d->name == "loc") {
            const auto& w = d->words;
            const auto text = [&](std::size_t n) { return w[n] + " " + w[n + 1]; };
            function.place = w.size() < 2 || w[1] == "0" ? "" : text(0);
            function.outermost.clear();
            const auto at = static_cast<std::size_t>(std::find(w.begin(), w.end(), "inlined_at") - w.begin()) + 1;
            if (w.size() < 3 || at + 2 >= w.size()) continue;
            const auto known = function.outer.find(text(at) + " " + w[at + 2]);
            function.outermost = known == function.outer.end() ? text(at) : known->second;
            function.outer[text(0) + " " + w[2]] = function.outermost;
        }
    }
}

std::string SourceLines::name(const std::string& file_and_line) const {
    const auto space = file_and_line.find(' ');
    const auto file = files_.find(file_and_line.substr(0, space));
    return file == files_.end() ? "" : file->second + ":" + file_and_line.substr(space + 1);
}

std::string SourceLines::of(std::uint32_t ptx_line) const {
    const auto place = places_.find(ptx_line);
    if (place == places_.end()) return "";
    const auto outer = inlined_at_.find(ptx_line);
    const std::string inside = name(place->second);
    return outer == inlined_at_.end() ? inside : inside + ", inlined at " + name(outer->second);
}

}  // namespace hpe::soft::exec
