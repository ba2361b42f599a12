// SPDX-License-Identifier: MIT
// The PTX parser: recursive descent over the tokens; the first error ends it.
#include "toolchain/ptx/parser.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "toolchain/ptx/lexer.h"
#include "toolchain/ptx/token_stream.h"

namespace hpe::ptx {
namespace {

// Nesting that no compiler writes is refused, so that a hostile text cannot exhaust the stack.
constexpr int deepest = 200;
constexpr std::uint64_t largest_variable = std::uint64_t{1} << 40;

bool is_linkage(std::string_view word) {
    return word == "visible" || word == "extern" || word == "weak" || word == "common";
}

Space space_named(std::string_view word) {
    if (word == "reg") return Space::Reg;
    if (word == "const") return Space::Const;
    if (word == "global") return Space::Global;
    if (word == "local") return Space::Local;
    if (word == "param") return Space::Param;
    if (word == "shared") return Space::Shared;
    return Space::None;
}

class Parser : TokenStream {
public:
    Parser(const std::vector<Token>& tokens, std::string& why) : TokenStream(tokens, why) {}

    bool module(Module& m) {
        if (!take_dot("version")) return fail("a module begins with .version");
        if (now().kind != Token::Kind::Float64) return fail("a version was expected");
        m.version = std::string(now().text);
        advance();
        if (!take_dot("target")) return fail("no .target after .version");
        while (true) {
            if (now().kind != Token::Kind::Name) return fail("an architecture was expected");
            m.target += now().text;
            advance();
            if (!take(',')) break;
            m.target += ", ";
        }
        if (take_dot("address_size")) {
            m.address_size = static_cast<unsigned>(now().value);
            if (m.address_size != 64 && m.address_size != 32) return fail("an address size that is neither 32 nor 64");
            advance();
        }
        while (now().kind != Token::Kind::End)
            if (!item(m)) return false;
        return true;
    }

private:
    bool item(Module& m) {
        if (take(';')) return true;
        if (now().kind != Token::Kind::Dot) return fail("a declaration was expected");
        if (now().text == "file" || now().text == "loc") {
            m.items.emplace_back(line_directive());
            return true;
        }
        if (now().text == "section") return section(m);
        if (now().text == "pragma" || now().text == "alias") {
            Directive d;
            if (!worded_directive(d)) return false;
            m.items.emplace_back(std::move(d));
            return true;
        }
        std::string linkage;
        if (is_linkage(now().text)) {
            linkage = std::string(now().text);
            advance();
        }
        if (now().is_dot("entry") || now().is_dot("func")) {
            Function f;
            f.linkage = linkage;
            if (!function(f)) return false;
            m.items.emplace_back(std::move(f));
            return true;
        }
        std::vector<Variable> variables;
        if (!declaration(variables, linkage)) return false;
        for (auto& v : variables) m.items.emplace_back(std::move(v));
        return true;
    }

    // .file and .loc have no semicolon: they end with their line.
    Directive line_directive() {
        Directive d;
        d.line = now().line;
        d.name = std::string(now().text);
        d.semicolon = false;
        advance();
        while (now().kind != Token::Kind::End && now().line == d.line) d.words.push_back(word());
        return d;
    }

    // DWARF data: kept word by word, never interpreted.
    bool section(Module& m) {
        Directive d;
        d.line = now().line;
        d.name = "section";
        d.semicolon = false;
        advance();
        int depth = 0;
        do {
            if (now().kind == Token::Kind::End) return fail("a section without an end");
            depth += now().is('{') ? 1 : now().is('}') ? -1 : 0;
            d.words.push_back(word());
        } while (depth > 0 || d.words.size() < 2);
        m.items.emplace_back(std::move(d));
        return true;
    }

    bool worded_directive(Directive& d) {
        d.line = now().line;
        d.name = std::string(now().text);
        advance();
        while (!now().is(';')) {
            if (now().kind == Token::Kind::End) return fail("a directive without an end");
            d.words.push_back(word());
        }
        advance();
        return true;
    }

    bool function(Function& f) {
        f.line = now().line;
        f.entry = now().is_dot("entry");
        advance();
        if (now().is('(') && !parameters(f.results)) return false;
        if (!take_name(f.name)) return false;
        if (now().is('(') && !parameters(f.parameters)) return false;
        while (now().kind == Token::Kind::Dot) {
            Directive d;
            d.line = now().line;
            d.name = std::string(now().text);
            d.semicolon = false;
            advance();
            if (d.name == "noreturn") {
                f.noreturn = true;
                continue;
            }
            if (d.name == "pragma") {
                d.semicolon = true;
                while (!now().is(';') && now().kind != Token::Kind::End) d.words.push_back(word());
                advance();
            }
            while (now().kind != Token::Kind::End && now().kind != Token::Kind::Dot && !now().is('{') && !now().is(';'))
                d.words.push_back(word());
            f.directives.push_back(std::move(d));
        }
        if (take(';')) return true;
        if (!now().is('{')) return fail("a function body was expected");
        f.defined = true;
        return scope(f.body, 0);
    }

    bool parameters(std::vector<Variable>& out) {
        advance();
        while (!take(')')) {
            if (!out.empty() && !take(',')) return fail("',' or ')' was expected in a parameter list");
            if (now().kind != Token::Kind::Dot || space_named(now().text) == Space::None)
                return fail("a parameter was expected");
            Variable v;
            if (!declarator_head(v) || !declarator(v)) return false;
            out.push_back(std::move(v));
        }
        return true;
    }

    // Space, alignment, vector, type.
    bool declarator_head(Variable& v) {
        v.line = now().line;
        v.space = space_named(now().text);
        advance();
        while (now().kind == Token::Kind::Dot) {
            const std::string word(now().text);
            if (word == "align") {
                advance();
                if (now().kind != Token::Kind::Integer || now().value == 0 || (now().value & (now().value - 1)) != 0 ||
                    now().value > 65536)
                    return fail("an alignment must be a power of two");
                v.alignment = now().value;
            } else if (word == "v2" || word == "v4" || word == "v8") {
                v.vector = static_cast<unsigned>(word[1] - '0');
            } else if (const Type t = type_named(word); t != Type::None) {
                if (v.type != Type::None) return fail("a declaration with two types");
                v.type = t;
            } else if (word == "attribute") {
                advance();
                std::string text = ".attribute";
                while (!now().is(')')) {
                    if (now().kind == Token::Kind::End) return fail("an attribute without an end");
                    text += this->word_text();
                    advance();
                }
                v.attributes.push_back(text + ")");
            } else if (word == "ptr") {
                std::string text = ".ptr";
                advance();
                while (now().kind == Token::Kind::Dot) {
                    text += " ." + std::string(now().text);
                    const bool align = now().text == "align";
                    advance();
                    if (!align) continue;
                    text += " " + std::string(now().text);
                    advance();
                }
                v.attributes.push_back(text);
                continue;
            } else {
                return fail("an unknown word in a declaration");
            }
            advance();
        }
        if (v.type == Type::None) return fail("a declaration without a type");
        if (v.space != Space::Reg && size_of(v.type) == 0) return fail("a type that only registers have");
        return true;
    }

    bool declarator(Variable& v) {
        if (!take_name(v.name)) return false;
        if (take('<')) {
            if (now().kind != Token::Kind::Integer || now().value > 1000000)
                return fail("a register count was expected");
            v.count = static_cast<std::uint32_t>(now().value);
            advance();
            if (!take('>')) return fail("'>' was expected");
        }
        std::uint64_t bytes = std::uint64_t{size_of(v.type)} * v.vector;
        while (take('[')) {
            v.array = true;
            if (take(']')) {
                v.unsized = true;
                continue;
            }
            std::int64_t extent = 0;
            if (!constant(extent, 0)) return false;
            if (extent < 0 || (extent != 0 && bytes > largest_variable / static_cast<std::uint64_t>(extent)))
                return fail("an array of an impossible size");
            bytes *= static_cast<std::uint64_t>(extent);
            v.extents.push_back(static_cast<std::uint64_t>(extent));
            if (!take(']')) return fail("']' was expected");
        }
        if (take('=')) {
            v.has_initial = true;
            return initial(v, 0);
        }
        return true;
    }

    bool declaration(std::vector<Variable>& out, const std::string& linkage) {
        if (space_named(now().text) == Space::None) return fail("an unknown declaration");
        Variable head;
        head.linkage = linkage;
        if (!declarator_head(head)) return false;
        while (true) {
            Variable v = head;
            v.line = now().line;
            if (!declarator(v)) return false;
            out.push_back(std::move(v));
            if (take(';')) return true;
            if (!take(',')) return fail("';' was expected after a declaration");
        }
    }

    // Braces of an array of arrays are flattened; what a row leaves out becomes Zeros.
    bool initial(Variable& v, std::size_t depth) {
        if (!take('{')) return initial_value(v);
        std::uint64_t row = v.vector;
        for (std::size_t i = depth; i < v.extents.size(); i++) row *= v.extents[i];
        if (depth > v.extents.size() + 1) return fail("an initialiser nested deeper than its array");
        std::uint64_t filled = 0;
        const auto count = [](const std::vector<Initial>& list, std::size_t from) {
            std::uint64_t total = 0;
            for (; from < list.size(); from++)
                total += list[from].kind == Initial::Kind::Zeros ? static_cast<std::uint64_t>(list[from].value) : 1;
            return total;
        };
        bool first = true;
        while (!take('}')) {
            if (!first && !take(',')) return fail("',' or '}' was expected in an initialiser");
            first = false;
            const std::size_t from = v.initial.size();
            if (!initial(v, depth + 1)) return false;
            filled += count(v.initial, from);
        }
        if (!v.unsized && filled > row) return fail("more initial values than elements");
        if (depth > 0 && !v.unsized && filled < row) {
            Initial zeros;
            zeros.kind = Initial::Kind::Zeros;
            zeros.value = static_cast<std::int64_t>(row - filled);
            v.initial.push_back(zeros);
        }
        return true;
    }

    bool initial_value(Variable& v) {
        Initial value;
        if (now().kind == Token::Kind::Float32 || now().kind == Token::Kind::Float64 ||
            (now().is('-') && next().kind == Token::Kind::Float64)) {
            const bool minus = take('-');
            value.kind = now().kind == Token::Kind::Float32 ? Initial::Kind::Float32 : Initial::Kind::Float64;
            value.value = static_cast<std::int64_t>(now().value ^ (minus ? std::uint64_t{1} << 63 : 0));
            advance();
        } else if (now().kind == Token::Kind::Integer && next().is('(')) {
            value.mask = now().value;
            advance();
            advance();
            if (!symbol_value(value)) return false;
            if (!take(')')) return fail("')' was expected in an initialiser");
        } else if (now().kind == Token::Kind::Name) {
            if (!symbol_value(value)) return false;
        } else if (!constant(value.value, 0)) {
            return false;
        }
        v.initial.push_back(std::move(value));
        return true;
    }

    bool symbol_value(Initial& value) {
        value.kind = Initial::Kind::Symbol;
        if (now().is_name("generic") && next().is('(')) {
            value.generic = true;
            advance();
            advance();
        }
        if (!take_name(value.symbol)) return false;
        const auto addend = [&] { return !(now().is('+') || now().is('-')) || constant_sum(value.value); };
        if (!addend()) return false;
        if (value.generic && !take(')')) return fail("')' was expected in an initialiser");
        return addend();
    }

    bool scope(Scope& s, int depth) {
        if (depth > deepest) return fail("scopes nested too deep");
        advance();
        while (!take('}')) {
            if (now().kind == Token::Kind::End) return fail("a scope without an end");
            if (!statement(s, depth)) return false;
        }
        return true;
    }

    bool statement(Scope& s, int depth) {
        if (take(';')) return true;
        if (now().is('{')) {
            auto inner = std::make_unique<Scope>();
            if (!scope(*inner, depth + 1)) return false;
            s.statements.emplace_back(std::move(inner));
            return true;
        }
        if (now().kind == Token::Kind::Name && next().is(':')) {
            s.statements.emplace_back(Label{now().line, std::string(now().text)});
            advance();
            advance();
            return true;
        }
        if (now().kind == Token::Kind::Dot) {
            if (now().text == "loc" || now().text == "file") {
                s.statements.emplace_back(line_directive());
                return true;
            }
            std::string linkage;
            if (is_linkage(now().text)) {
                linkage = std::string(now().text);
                advance();
            }
            if (space_named(now().text) != Space::None) {
                std::vector<Variable> variables;
                if (!declaration(variables, linkage)) return false;
                for (auto& v : variables) s.statements.emplace_back(std::move(v));
                return true;
            }
            static constexpr std::string_view known[] = {"pragma",        "branchtargets", "calltargets",
                                                         "callprototype", "abi_preserve",  "abi_preserve_control"};
            if (!linkage.empty() || std::find(std::begin(known), std::end(known), now().text) == std::end(known))
                return fail("an unknown directive");
            Directive d;
            if (!worded_directive(d)) return false;
            s.statements.emplace_back(std::move(d));
            return true;
        }
        Instruction i;
        if (!instruction(i)) return false;
        s.statements.emplace_back(std::move(i));
        return true;
    }

    bool instruction(Instruction& i) {
        i.line = now().line;
        if (take('@')) {
            i.guard.negated = take('!');
            if (!take_name(i.guard.name)) return false;
        }
        if (!take_name(i.opcode)) return false;
        while (now().kind == Token::Kind::Dot) {
            i.modifiers.emplace_back(now().text);
            advance();
        }
        while (!take(';')) {
            if (!i.operands.empty() && !take(',')) return fail("',' or ';' was expected");
            Operand o;
            if (!operand(o, 0)) return false;
            i.operands.push_back(std::move(o));
        }
        return true;
    }

    bool operands_until(char close, Operand& o, int depth) {
        while (!take(close)) {
            if (!o.elements.empty() && !take(',')) return fail("',' or a closing bracket was expected");
            if (!operand(o.elements.emplace_back(), depth + 1)) return false;
        }
        return true;
    }

    bool operand(Operand& o, int depth) {
        if (depth > deepest) return fail("operands nested too deep");
        if (take('{')) {
            o.kind = Operand::Kind::Vector;
            return operands_until('}', o, depth) && paired(o, depth);
        }
        if (now().is('(') && depth == 0) {
            advance();
            o.kind = Operand::Kind::List;
            return operands_until(')', o, depth);
        }
        if (take('[')) return address(o, depth);
        if (now().is('!') && next().kind == Token::Kind::Name) {
            advance();
            o.negated = true;
        }
        if (now().kind == Token::Kind::Name) return name_operand(o, depth);
        if (now().kind == Token::Kind::Float32 || now().kind == Token::Kind::Float64 ||
            (now().is('-') && next().kind == Token::Kind::Float64)) {
            const bool minus = take('-');
            o.kind = now().kind == Token::Kind::Float32 ? Operand::Kind::Float32 : Operand::Kind::Float64;
            o.value = static_cast<std::int64_t>(now().value ^ (minus ? std::uint64_t{1} << 63 : 0));
            advance();
            return true;
        }
        o.kind = Operand::Kind::Integer;
        return constant(o.value, 0);
    }

    // p|q, and {a, b, c, d}|p of textures.
    bool paired(Operand& o, int depth) {
        if (!now().is('|') || next().kind != Token::Kind::Name) return true;
        advance();
        Operand first = std::move(o), second;
        if (!operand(second, depth + 1)) return false;
        o = Operand{};
        o.kind = Operand::Kind::Pair;
        o.elements.push_back(std::move(first));
        o.elements.push_back(std::move(second));
        return true;
    }

    bool name_operand(Operand& o, int depth) {
        o.name = std::string(now().text);
        advance();
        while (now().kind == Token::Kind::Dot) {  // %tid.x, %v.y
            o.name += "." + std::string(now().text);
            advance();
        }
        if (now().is('|')) return paired(o, depth);
        if (now().is('+') || now().is('-')) {  // mov.u64 %rd, table+8
            return constant_sum(o.value);
        }
        return true;
    }

    bool address(Operand& o, int depth) {
        o.kind = Operand::Kind::Address;
        Operand base;
        if (now().kind == Token::Kind::Name) {
            base.name = std::string(now().text);
            advance();
            if (now().is(',')) {
                o.kind = Operand::Kind::Coordinates;
                o.elements.push_back(std::move(base));
                while (take(','))
                    if (!operand(o.elements.emplace_back(), depth + 1)) return false;
                if (!take(']')) return fail("']' was expected");
                return true;
            }
            if ((now().is('+') || now().is('-')) && !constant_sum(o.value)) return false;
        } else {
            base.kind = Operand::Kind::Integer;
            if (!constant(base.value, 0)) return false;
        }
        o.elements.push_back(std::move(base));
        if (!take(']')) return fail("']' was expected");
        return true;
    }
};

}  // namespace

std::unique_ptr<Module> parse(std::string_view text, std::string& why) {
    try {
        std::vector<Token> tokens;
        if (!tokenize(text, tokens, why)) return nullptr;
        auto m = std::make_unique<Module>();
        if (!Parser(tokens, why).module(*m)) return nullptr;
        return m;
    } catch (const std::bad_alloc&) {
        why = "out of memory";
        return nullptr;
    }
}

}  // namespace hpe::ptx
