// SPDX-License-Identifier: MIT
// Fuzz target: the PTX linker. The input is several texts with a line of one '|' between them; those that the parser
// and the verifier accept are linked, and the result must be a module that both accept and that is printed the same
// again. Each definition in it stands once.
#include <set>
#include <string_view>
#include <vector>

#include "tests/fuzz/target.h"
#include "toolchain/ptx/link.h"
#include "toolchain/ptx/parser.h"
#include "toolchain/ptx/printer.h"
#include "toolchain/ptx/verify.h"

using namespace hpe;

namespace {

std::set<std::string> kernels_of(const ptx::Module& module) {
    std::set<std::string> names;
    for (const auto& item : module.items)
        if (const auto* f = std::get_if<ptx::Function>(&item); f != nullptr && f->entry && f->defined)
            names.insert(f->name);
    return names;
}

void expect_one_definition(const ptx::Module& module) {
    std::set<std::string> names;
    for (const auto& item : module.items) {
        const auto* f = std::get_if<ptx::Function>(&item);
        const auto* v = std::get_if<ptx::Variable>(&item);
        if (f != nullptr && f->defined && !names.insert(f->name).second) stop("two functions " + f->name);
        if (v != nullptr && v->linkage != "extern" && !names.insert(v->name).second) stop("two variables " + v->name);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    std::vector<ptx::LinkInput> inputs;
    std::set<std::string> kernels;
    std::string why;
    while (!rest.empty() && inputs.size() < 8) {
        const std::size_t end = rest.find("\n|\n");
        const std::string_view text = rest.substr(0, end);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 3);
        auto module = ptx::parse(text, why);
        if (module == nullptr || !ptx::verify(*module, why)) continue;
        kernels.merge(kernels_of(*module));
        inputs.push_back({std::move(module), std::to_string(inputs.size())});
    }
    const bool one = inputs.size() == 1;
    const auto linked = ptx::link(
        std::move(inputs), [](const std::string& name) { return name == "vprintf"; }, why);
    if (linked == nullptr) {
        if (why.empty()) stop("refused without a reason");
        return 0;
    }
    if (kernels_of(*linked) != kernels) stop("not the kernels of the inputs");
    if (one) return 0;
    const std::string printed = ptx::print(*linked);
    expect_one_definition(*linked);
    const auto again = ptx::parse(printed, why);
    if (again == nullptr || !ptx::verify(*again, why)) stop("what was linked is not accepted: " + why + "\n" + printed);
    if (ptx::print(*again) != printed) stop("printed twice, it differs:\n" + printed + "\n---\n" + ptx::print(*again));
    return 0;
}
