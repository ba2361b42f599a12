// SPDX-License-Identifier: MIT
// The PTX verifier. Types of operands are checked by whoever translates an instruction, because they depend on it.
#include "toolchain/ptx/verify.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace hpe::ptx {
namespace {

class Verifier {
public:
    Verifier(const Module& m, std::string& why) : module_(m), why_(why) {}

    bool run() {
        if (module_.address_size != 64) return fail(1, "only 64-bit addresses are supported", "");
        for (const auto& item : module_.items) {
            if (const auto* v = std::get_if<Variable>(&item)) {
                if (!global(*v)) return false;
            } else if (const auto* f = std::get_if<Function>(&item)) {
                auto& defined = functions_[f->name];
                if (defined && f->defined) return fail(f->line, "defined twice: ", f->name);
                defined = defined || f->defined;
                if (f->entry && !f->results.empty()) return fail(f->line, "a kernel with results: ", f->name);
                globals_.insert(f->name);
            } else if (const auto* d = std::get_if<Directive>(&item); d != nullptr && d->name == "alias") {
                if (!d->words.empty()) globals_.insert(d->words[0]);
            }
        }
        for (const auto& item : module_.items)
            if (const auto* f = std::get_if<Function>(&item); f != nullptr && f->defined && !function(*f)) return false;
        return true;
    }

private:
    using Names = std::unordered_set<std::string>;

    bool fail(std::uint32_t line, const char* what, const std::string& name) {
        why_ = "line " + std::to_string(line) + ": " + what + name;
        return false;
    }

    bool global(const Variable& v) {
        if (v.space == Space::Reg || v.space == Space::Param || v.space == Space::Local)
            return fail(v.line, "not allowed at module scope: ", v.name);
        if (v.unsized && v.linkage != "extern" && v.initial.empty())
            return fail(v.line, "an array without a size: ", v.name);
        if (v.linkage != "extern" && !variables_.insert(v.name).second) return fail(v.line, "declared twice: ", v.name);
        globals_.insert(v.name);
        return true;
    }

    bool function(const Function& f) {
        Names labels;
        if (!collect_labels(f.body, labels)) return false;
        scopes_.clear();
        scopes_.emplace_back();
        for (const auto& v : f.parameters) declare(v);
        for (const auto& v : f.results) declare(v);
        return scope(f.body, labels);
    }

    // Labels of inner scopes may repeat in other scopes, so only the names matter here.
    bool collect_labels(const Scope& s, Names& labels) {
        for (const auto& statement : s.statements) {
            if (const auto* l = std::get_if<Label>(&statement)) labels.insert(l->name);
            if (const auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement))
                if (!collect_labels(**inner, labels)) return false;
        }
        return true;
    }

    void declare(const Variable& v) {
        if (v.count == 0)
            scopes_.back().names.insert(v.name);
        else
            scopes_.back().counted[v.name] = v.count;
    }

    struct Declared {
        Names names;
        std::unordered_map<std::string, std::uint32_t> counted;
    };

    bool known(const std::string& name) const {
        if (name == "_" || globals_.contains(name)) return true;
        const std::string_view base = std::string_view(name).substr(0, name.find('.'));
        for (const auto& s : scopes_) {
            if (s.names.contains(std::string(base))) return true;
            std::size_t digits = base.size();
            while (digits > 0 && base[digits - 1] >= '0' && base[digits - 1] <= '9') digits--;
            if (digits == base.size() || base.size() - digits > 7) continue;
            const auto found = s.counted.find(std::string(base.substr(0, digits)));
            if (found != s.counted.end() && std::stoul(std::string(base.substr(digits))) < found->second) return true;
        }
        return false;
    }

    bool name(const std::string& n, std::uint32_t line, const Names& labels) {
        if (labels.contains(n) || known(n)) return true;
        if (n.starts_with("%") || n.starts_with("WARP_SZ")) return special(n) || fail(line, "not declared: ", n);
        return fail(line, "not declared: ", n);
    }

    static bool special(const std::string& n) {
        static constexpr std::string_view prefixes[] = {"%tid",
                                                        "%ntid",
                                                        "%ctaid",
                                                        "%nctaid",
                                                        "%laneid",
                                                        "%warpid",
                                                        "%nwarpid",
                                                        "%smid",
                                                        "%nsmid",
                                                        "%gridid",
                                                        "%lanemask",
                                                        "%clock",
                                                        "%globaltimer",
                                                        "%envreg",
                                                        "%pm",
                                                        "%cluster",
                                                        "%nclusterid",
                                                        "%is_explicit_cluster",
                                                        "%total_smem_size",
                                                        "%dynamic_smem_size",
                                                        "%aggr_smem_size",
                                                        "%reserved_smem",
                                                        "%current_graph_exec",
                                                        "WARP_SZ"};
        for (const auto p : prefixes)
            if (n.starts_with(p)) return true;
        return false;
    }

    bool operand(const Operand& o, std::uint32_t line, const Names& labels) {
        if (o.kind == Operand::Kind::Name) return name(o.name, line, labels);
        for (const auto& e : o.elements)
            if (!operand(e, line, labels)) return false;
        return true;
    }

    bool scope(const Scope& s, const Names& labels) {
        for (const auto& statement : s.statements) {
            if (const auto* v = std::get_if<Variable>(&statement)) {
                if (v->space == Space::Global || v->space == Space::Const || v->space == Space::None)
                    return fail(v->line, "not allowed in a function: ", v->name);
                declare(*v);
            } else if (const auto* i = std::get_if<Instruction>(&statement)) {
                if (!i->guard.name.empty() && !name(i->guard.name, i->line, labels)) return false;
                for (const auto& o : i->operands)
                    if (!operand(o, i->line, labels)) return false;
            } else if (const auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement)) {
                scopes_.emplace_back();
                if (!scope(**inner, labels)) return false;
                scopes_.pop_back();
            }
        }
        return true;
    }

    const Module& module_;
    std::string& why_;
    Names globals_, variables_;
    std::unordered_map<std::string, bool> functions_;
    std::vector<Declared> scopes_;
};

}  // namespace

bool verify(const Module& module, std::string& why) { return Verifier(module, why).run(); }

}  // namespace hpe::ptx
