// SPDX-License-Identifier: MIT
// The PTX printer.
#include "toolchain/ptx/printer.h"

#include <cstdio>
#include <type_traits>

namespace hpe::ptx {
namespace {

std::string bits(const char* prefix, int digits, std::int64_t value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%s%0*llX", prefix, digits, static_cast<unsigned long long>(value));
    return buffer;
}

std::string offset(std::int64_t value) {
    if (value == 0) return "";
    return value > 0 ? "+" + std::to_string(value) : std::to_string(value);
}

void write(std::string& out, const Operand& o);

void write_list(std::string& out, const std::vector<Operand>& list, char open, char close) {
    out += open;
    for (std::size_t i = 0; i < list.size(); i++) {
        if (i != 0) out += ", ";
        write(out, list[i]);
    }
    out += close;
}

void write(std::string& out, const Operand& o) {
    if (o.negated) out += '!';
    switch (o.kind) {
        case Operand::Kind::Name: out += o.name + offset(o.value); break;
        case Operand::Kind::Integer: out += std::to_string(o.value); break;
        case Operand::Kind::Float32: out += bits("0f", 8, o.value); break;
        case Operand::Kind::Float64: out += bits("0d", 16, o.value); break;
        case Operand::Kind::Address:
            out += '[';
            write(out, o.elements[0]);
            out += offset(o.value) + "]";
            break;
        case Operand::Kind::Vector: write_list(out, o.elements, '{', '}'); break;
        case Operand::Kind::List: write_list(out, o.elements, '(', ')'); break;
        case Operand::Kind::Coordinates: write_list(out, o.elements, '[', ']'); break;
        case Operand::Kind::Pair:
            write(out, o.elements[0]);
            out += '|';
            write(out, o.elements[1]);
            break;
    }
}

void write(std::string& out, const Initial& value) {
    switch (value.kind) {
        case Initial::Kind::Integer: out += std::to_string(value.value); break;
        case Initial::Kind::Float32: out += bits("0f", 8, value.value); break;
        case Initial::Kind::Float64: out += bits("0d", 16, value.value); break;
        case Initial::Kind::Zeros:
            for (std::int64_t i = 0; i < value.value; i++) out += i == 0 ? "0" : ", 0";
            break;
        case Initial::Kind::Symbol: {
            const std::string sum = value.symbol + offset(value.value);
            const std::string address = value.generic ? "generic(" + value.symbol + ")" + offset(value.value) : sum;
            out +=
                value.mask != 0 ? bits("0x", 1, static_cast<std::int64_t>(value.mask)) + "(" + address + ")" : address;
            break;
        }
    }
}

void write_head(std::string& out, const Variable& v) {
    out += "." + std::string(name_of(v.space));
    // nvcc writes .attribute in front of the type, .ptr behind it.
    for (const auto& a : v.attributes)
        if (a.starts_with(".attribute")) out += " " + a;
    if (v.alignment != 0) out += " .align " + std::to_string(v.alignment);
    if (v.vector > 1) out += " .v" + std::to_string(v.vector);
    out += " ." + std::string(name_of(v.type));
    for (const auto& a : v.attributes)
        if (!a.starts_with(".attribute")) out += " " + a;
    out += " " + v.name;
    if (v.count != 0) out += "<" + std::to_string(v.count) + ">";
    if (v.unsized) out += "[]";
    for (const auto extent : v.extents) out += "[" + std::to_string(extent) + "]";
}

void write(std::string& out, const Variable& v) {
    if (!v.linkage.empty()) out += "." + v.linkage + " ";
    write_head(out, v);
    if (v.has_initial) {
        out += " = ";
        const bool braces = v.array || v.vector > 1 || v.initial.size() != 1;
        // One flat list is a legal initialiser only of a one-dimensional array, so rows are written for the others.
        std::uint64_t row = v.extents.size() > 1 ? v.bytes() / size_of(v.type) : 0;
        if (v.extents.size() > 1 && row != 0) {
            std::vector<std::string> flat;
            for (const auto& value : v.initial) {
                if (value.kind == Initial::Kind::Zeros) {
                    flat.insert(flat.end(), static_cast<std::size_t>(value.value), "0");
                } else {
                    write(flat.emplace_back(), value);
                }
            }
            for (std::size_t i = 0; i < flat.size(); i++) {
                if (i != 0) out += ", ";
                std::uint64_t size = row;
                for (std::size_t d = 0; d < v.extents.size(); d++, size /= v.extents[d - 1])
                    if (i % size == 0) out += '{';
                out += flat[i];
                size = row;
                for (std::size_t d = 0; d < v.extents.size(); d++, size /= v.extents[d - 1])
                    if ((i + 1) % size == 0 || i + 1 == flat.size()) out += '}';
            }
        } else {
            if (braces) out += '{';
            for (std::size_t i = 0; i < v.initial.size(); i++) {
                if (i != 0) out += ", ";
                write(out, v.initial[i]);
            }
            if (braces) out += '}';
        }
    }
    out += ";\n";
}

void write(std::string& out, const Directive& d) {
    out += "." + d.name;
    for (const auto& w : d.words) out += " " + w;
    if (d.semicolon) out += ";";
    out += "\n";
}

void write(std::string& out, const Scope& s, int depth) {
    const std::string indent(static_cast<std::size_t>(depth), '\t');
    for (const auto& statement : s.statements) {
        std::visit(
            [&](const auto& value) {
                using T = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<T, Label>) {
                    out += value.name + ":\n";
                } else if constexpr (std::is_same_v<T, Instruction>) {
                    out += indent + print(value) + "\n";
                } else if constexpr (std::is_same_v<T, std::unique_ptr<Scope>>) {
                    out += indent + "{\n";
                    write(out, *value, depth + 1);
                    out += indent + "}\n";
                } else {
                    out += indent;
                    write(out, value);
                }
            },
            statement);
    }
}

void write_parameters(std::string& out, const std::vector<Variable>& list) {
    out += '(';
    for (std::size_t i = 0; i < list.size(); i++) {
        out += i == 0 ? "\n\t" : ",\n\t";
        write_head(out, list[i]);
    }
    out += ")";
}

void write(std::string& out, const Function& f) {
    if (!f.linkage.empty()) out += "." + f.linkage + " ";
    out += f.entry ? ".entry " : ".func ";
    if (!f.results.empty()) write_parameters(out, f.results);
    out += " " + f.name;
    write_parameters(out, f.parameters);
    if (f.noreturn) out += " .noreturn";
    for (const auto& d : f.directives) {
        out += "\n";
        write(out, d);
    }
    if (!f.defined) {
        out += ";\n";
        return;
    }
    out += "\n{\n";
    write(out, f.body, 1);
    out += "}\n";
}

}  // namespace

std::string print(const Instruction& i) {
    std::string out;
    if (!i.guard.name.empty()) out += (i.guard.negated ? "@!" : "@") + i.guard.name + " ";
    out += i.opcode;
    for (const auto& m : i.modifiers) out += "." + m;
    for (std::size_t n = 0; n < i.operands.size(); n++) {
        out += n == 0 ? " " : ", ";
        write(out, i.operands[n]);
    }
    return out + ";";
}

std::string print(const Module& m) {
    std::string out =
        ".version " + m.version + "\n.target " + m.target + "\n.address_size " + std::to_string(m.address_size) + "\n";
    for (const auto& item : m.items) std::visit([&](const auto& value) { write(out, value); }, item);
    return out;
}

}  // namespace hpe::ptx
