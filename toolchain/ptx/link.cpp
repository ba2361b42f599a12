// SPDX-License-Identifier: MIT
// The linker: chooses a definition for every name, renames what is local to two modules, and writes one list of items.
#include "toolchain/ptx/link.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace hpe::ptx {
namespace {

using Names = std::unordered_set<std::string>;
using Renames = std::unordered_map<std::string, std::string>;

bool is_digits(const std::string& text, std::size_t from) {
    return from < text.size() && text.find_first_not_of("0123456789", from) == std::string::npos;
}

// Gives the names of one module's own symbols new ones, except where a function has something of the same name itself.
class Renamer {
public:
    explicit Renamer(const Renames& renames) : renames_(renames) {}

    void item(Variable& v) const {
        name(v.name);
        for (Initial& value : v.initial) name(value.symbol);
    }
    void item(Function& f) {
        name(f.name);
        hidden_.emplace_back();
        for (const Variable& v : f.parameters) hide(v);
        for (const Variable& v : f.results) hide(v);
        scope(f.body);
        hidden_.pop_back();
    }
    void item(Directive& d) const {
        if (d.name == "alias")
            for (std::string& word : d.words) name(word);
    }

private:
    void hide(const Variable& v) {
        for (const auto& [from, to] : renames_) {
            const bool numbered = v.count != 0 && from.starts_with(v.name) && is_digits(from, v.name.size());
            if (from == v.name || numbered) hidden_.back().insert(from);
        }
    }
    bool is_hidden(const std::string& n) const {
        return std::any_of(hidden_.begin(), hidden_.end(), [&](const Names& names) { return names.contains(n); });
    }
    // What follows a dot is a part of the value, as in a.x.
    void name(std::string& n) const {
        const std::size_t dot = n.find('.');
        const auto at = renames_.find(n.substr(0, dot));
        if (at == renames_.end() || is_hidden(at->first)) return;
        n = dot == std::string::npos ? at->second : at->second + n.substr(dot);
    }
    void operand(Operand& o) const {
        if (!o.name.empty()) name(o.name);
        for (Operand& element : o.elements) operand(element);
    }
    void scope(Scope& s) {
        hidden_.emplace_back();
        for (const Statement& statement : s.statements) {
            if (const auto* v = std::get_if<Variable>(&statement)) hide(*v);
            if (const auto* l = std::get_if<Label>(&statement)) hidden_.back().insert(l->name);
        }
        for (Statement& statement : s.statements) {
            if (auto* i = std::get_if<Instruction>(&statement)) {
                for (Operand& o : i->operands) operand(o);
            } else if (auto* v = std::get_if<Variable>(&statement)) {
                for (Initial& value : v->initial) name(value.symbol);
            } else if (auto* d = std::get_if<Directive>(&statement)) {
                if (d->name == "calltargets")
                    for (std::string& word : d->words) name(word);
            } else if (auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement)) {
                scope(**inner);
            }
        }
        hidden_.pop_back();
    }

    const Renames& renames_;
    std::vector<Names> hidden_;
};

// Every name that a function has for itself: a new name must not be taken for one of them.
void collect_own(const Scope& s, Names& out) {
    for (const Statement& statement : s.statements) {
        if (const auto* v = std::get_if<Variable>(&statement)) out.insert(v->name);
        if (const auto* l = std::get_if<Label>(&statement)) out.insert(l->name);
        if (const auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement)) collect_own(**inner, out);
    }
}

// Source files are numbered anew, and what .loc says beyond file, line and column refers to sections that are left out.
void renumber(Directive& d, unsigned first_file) {
    if (d.words.empty() || !is_digits(d.words[0], 0)) return;
    d.words[0] = std::to_string(std::strtoul(d.words[0].c_str(), nullptr, 10) + first_file);
    if (d.name == "loc" && d.words.size() > 3) d.words.resize(3);
}
void renumber(Scope& s, unsigned first_file) {
    for (Statement& statement : s.statements) {
        if (auto* d = std::get_if<Directive>(&statement); d != nullptr && d->name == "loc") renumber(*d, first_file);
        if (auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement)) renumber(**inner, first_file);
    }
}

enum class Strength { None, Weak, Common, Strong };

// A name that all modules share.
struct Symbol {
    const Variable* variable = nullptr;  // the definition, or else a declaration
    const Function* function = nullptr;
    std::size_t input = 0;  // of it
    Strength strength = Strength::None;
};

bool is_shared_name(const Variable& v) { return !v.linkage.empty(); }
bool is_shared_name(const Function& f) { return f.entry || !f.linkage.empty(); }

Strength strength_of(const std::string& linkage) {
    return linkage == "weak" ? Strength::Weak : linkage == "common" ? Strength::Common : Strength::Strong;
}
Strength strength_of(const Variable& v) { return v.linkage == "extern" ? Strength::None : strength_of(v.linkage); }
Strength strength_of(const Function& f) { return f.defined ? strength_of(f.linkage) : Strength::None; }

bool same_form(const Function& a, const Function& b) {
    const auto same = [](const std::vector<Variable>& x, const std::vector<Variable>& y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                          [](const Variable& v, const Variable& w) { return v.bytes() == w.bytes(); });
    };
    return a.entry == b.entry && same(a.results, b.results) && same(a.parameters, b.parameters);
}
bool same_form(const Variable& a, const Variable& b) {
    if (a.space != b.space) return false;
    if (a.unsized || b.unsized || (a.linkage == "common" && b.linkage == "common")) return true;
    return a.bytes() == b.bytes();
}

class Linker {
public:
    Linker(std::vector<LinkInput>& inputs, const std::function<bool(const std::string&)>& provided, std::string& why)
        : inputs_(inputs), provided_(provided), why_(why) {}

    std::unique_ptr<Module> run() {
        if (inputs_.empty()) {
            complain("there is nothing to link");
            return nullptr;
        }
        enter_all();
        collect_used();
        for (const auto& [name, symbol] : symbols_) check_defined(name, symbol);
        if (!why_.empty()) return nullptr;
        rename_locals();
        return joined();
    }

    void enter_all() {
        for (std::size_t i = 0; i < inputs_.size(); i++)
            for (const Item& item : inputs_[i].module->items) {
                if (const auto* v = std::get_if<Variable>(&item); v != nullptr && is_shared_name(*v)) enter(*v, i);
                if (const auto* f = std::get_if<Function>(&item); f != nullptr && is_shared_name(*f)) enter(*f, i);
            }
    }

private:
    void complain(const std::string& what) {
        if (!why_.empty()) why_ += '\n';
        why_ += what;
    }
    std::string quoted(std::size_t input) const { return "'" + inputs_[input].name + "'"; }

    template <class Declared>
    static const Declared*& part(Symbol& symbol) {
        if constexpr (std::is_same_v<Declared, Variable>)
            return symbol.variable;
        else
            return symbol.function;
    }

    static bool beats(const Variable& fresh, const Variable& old) {
        return fresh.linkage == "common" && fresh.bytes() > old.bytes();
    }
    static bool beats(const Function&, const Function&) { return false; }

    template <class Declared>
    void enter(const Declared& declared, std::size_t input) {
        const auto [at, fresh] = symbols_.try_emplace(declared.name);
        Symbol& symbol = at->second;
        const Declared*& known = part<Declared>(symbol);
        const Strength strength = strength_of(declared);
        if (!fresh && known == nullptr) {
            complain("'" + declared.name + "' is a function and a variable: " + quoted(symbol.input) + ", " +
                     quoted(input));
            return;
        }
        if (fresh) {
            symbol = {nullptr, nullptr, input, strength};
            known = &declared;
            return;
        }
        if (strength == Strength::Strong && symbol.strength == Strength::Strong) {
            complain("multiple definition of '" + declared.name + "' in " + quoted(input) + ", first defined in " +
                     quoted(symbol.input));
            return;
        }
        if (!same_form(declared, *known)) {
            const bool is_function = std::is_same_v<Declared, Function>;
            complain(std::string(is_function ? "prototype" : "size") + " doesn't match for '" + declared.name +
                     "' in " + quoted(input) + ", first " + (is_function ? "defined" : "specified") + " in " +
                     quoted(symbol.input));
            return;
        }
        if (strength == Strength::Common && symbol.strength == Strength::Common) check_commons(declared, *known, input);
        if (strength > symbol.strength || (strength == symbol.strength && beats(declared, *known))) {
            symbol.input = input;
            symbol.strength = strength;
            known = &declared;
        }
    }

    // Only one may be initialised, and that must be the largest.
    void check_commons(const Variable& a, const Variable& b, std::size_t input) {
        const bool good = !(a.has_initial && b.has_initial) && (!a.has_initial || a.bytes() >= b.bytes()) &&
                          (!b.has_initial || b.bytes() >= a.bytes());
        if (!good) complain("initialised .common '" + a.name + "' in " + quoted(input) + " is not the only or largest");
    }
    void check_commons(const Function&, const Function&, std::size_t) {}

    void check_defined(const std::string& name, const Symbol& symbol) {
        if (symbol.strength != Strength::None || provided_(name)) return;
        if (symbol.function != nullptr && !used_.contains(name)) return;
        // Shared memory of no stated size is what a launch asks for.
        const Variable* v = symbol.variable;
        if (v != nullptr && v->space == Space::Shared && v->unsized) return;
        complain("undefined reference to '" + name + "' in " + quoted(symbol.input));
    }

    // A function that is declared and never named needs no definition.
    void collect_used() {
        for (const LinkInput& input : inputs_)
            for (const Item& item : input.module->items) {
                if (const auto* v = std::get_if<Variable>(&item)) collect_used(*v);
                if (const auto* f = std::get_if<Function>(&item)) collect_used(f->body);
                if (const auto* d = std::get_if<Directive>(&item)) used_.insert(d->words.begin(), d->words.end());
            }
    }
    void collect_used(const Variable& v) {
        for (const Initial& value : v.initial) use(value.symbol);
    }
    void collect_used(const Operand& o) {
        use(o.name);
        for (const Operand& element : o.elements) collect_used(element);
    }
    void collect_used(const Scope& s) {
        for (const Statement& statement : s.statements) {
            if (const auto* i = std::get_if<Instruction>(&statement))
                for (const Operand& o : i->operands) collect_used(o);
            if (const auto* v = std::get_if<Variable>(&statement)) collect_used(*v);
            if (const auto* d = std::get_if<Directive>(&statement)) used_.insert(d->words.begin(), d->words.end());
            if (const auto* inner = std::get_if<std::unique_ptr<Scope>>(&statement)) collect_used(**inner);
        }
    }
    void use(const std::string& name) { used_.insert(name.substr(0, name.find('.'))); }

    void rename_locals() {
        Names taken;
        for (const auto& [name, symbol] : symbols_) taken.insert(name);
        Names own;
        for (const LinkInput& input : inputs_)
            for (const Item& item : input.module->items)
                if (const auto* f = std::get_if<Function>(&item)) {
                    for (const Variable& v : f->parameters) own.insert(v.name);
                    collect_own(f->body, own);
                }
        for (const LinkInput& input : inputs_) {
            Renames renames;
            Names locals;
            const auto see = [&](const std::string& name) {
                if (!locals.insert(name).second) return;  // declared before it is defined
                if (taken.insert(name).second) return;
                std::string fresh;
                do fresh = name + "$" + std::to_string(++last_number_);
                while (own.contains(fresh) || taken.contains(fresh));
                taken.insert(fresh);
                renames.emplace(name, fresh);
            };
            for (const Item& item : input.module->items) {
                if (const auto* v = std::get_if<Variable>(&item); v != nullptr && !is_shared_name(*v)) see(v->name);
                if (const auto* f = std::get_if<Function>(&item); f != nullptr && !is_shared_name(*f)) see(f->name);
            }
            if (renames.empty()) continue;
            Renamer renamer(renames);
            for (Item& item : input.module->items) std::visit([&](auto& value) { renamer.item(value); }, item);
        }
    }

    static bool newer(const std::string& a, const std::string& b) {
        const auto number = [](const std::string& version) {
            char* end = nullptr;
            const unsigned long major = std::strtoul(version.c_str(), &end, 10);
            return major * 1000 + (*end == '.' ? std::strtoul(end + 1, nullptr, 10) : 0);
        };
        return number(a) > number(b);
    }

    // Declarations of functions come first, then variables, then functions: so nothing is named before it is known.
    std::unique_ptr<Module> joined() {
        if (inputs_.size() == 1) return std::move(inputs_[0].module);
        auto out = std::make_unique<Module>();
        std::vector<Item> files, declarations, variables, functions;
        std::map<std::string, std::uint64_t> dynamic_shared;  // alignment
        for (const LinkInput& input : inputs_)
            for (const Item& item : input.module->items)
                if (const auto* v = std::get_if<Variable>(&item);
                    v != nullptr && v->space == Space::Shared && v->unsized)
                    dynamic_shared[v->name] = std::max(dynamic_shared[v->name], v->alignment);
        unsigned first_file = 0;
        std::set<std::string> declared;
        for (std::size_t n = 0; n < inputs_.size(); n++) {
            Module& m = *inputs_[n].module;
            if (n == 0 || newer(m.version, out->version)) out->version = m.version;
            if (n == 0 || m.target_arch() > out->target_arch()) out->target = m.target;
            unsigned files_here = 0;
            for (Item& item : m.items) {
                if (auto* d = std::get_if<Directive>(&item)) {
                    if (d->name == "section") continue;
                    if (d->name == "file" || d->name == "loc") {
                        if (d->name == "file" && !d->words.empty())
                            files_here = std::max(
                                files_here, static_cast<unsigned>(std::strtoul(d->words[0].c_str(), nullptr, 10) + 1));
                        renumber(*d, first_file);
                        files.emplace_back(std::move(*d));
                    } else {
                        functions.emplace_back(std::move(*d));
                    }
                } else if (auto* v = std::get_if<Variable>(&item)) {
                    if (is_shared_name(*v) && symbols_.at(v->name).variable != v) continue;
                    if (v->space == Space::Shared && v->unsized) v->alignment = dynamic_shared[v->name];
                    variables.emplace_back(std::move(*v));
                } else if (auto* f = std::get_if<Function>(&item)) {
                    const bool chosen = !is_shared_name(*f) || symbols_.at(f->name).function == f;
                    if (declared.insert(f->name).second && !f->entry) declarations.emplace_back(declaration_of(*f));
                    if (!chosen || !f->defined) continue;
                    renumber(f->body, first_file);
                    functions.emplace_back(std::move(*f));
                }
            }
            first_file += files_here;
        }
        for (auto* list : {&files, &declarations, &variables, &functions})
            out->items.insert(out->items.end(), std::make_move_iterator(list->begin()),
                              std::make_move_iterator(list->end()));
        return out;
    }

    Function declaration_of(const Function& f) const {
        Function d;
        d.name = f.name;
        d.results = f.results;
        d.parameters = f.parameters;
        d.noreturn = f.noreturn;
        d.linkage = f.linkage;
        if (const auto at = symbols_.find(f.name); at != symbols_.end() && at->second.function != nullptr)
            d.linkage = at->second.function->linkage;
        return d;
    }

    std::vector<LinkInput>& inputs_;
    const std::function<bool(const std::string&)>& provided_;
    std::string& why_;
    std::map<std::string, Symbol> symbols_;
    Names used_;
    unsigned last_number_ = 0;
};

}  // namespace

std::unique_ptr<Module> link(std::vector<LinkInput> inputs, const std::function<bool(const std::string&)>& provided,
                             std::string& why) {
    why.clear();
    return Linker(inputs, provided, why).run();
}

bool fits(std::vector<LinkInput>& inputs, std::string& why) {
    why.clear();
    Linker(inputs, {}, why).enter_all();
    return why.empty();
}

}  // namespace hpe::ptx
