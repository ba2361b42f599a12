// SPDX-License-Identifier: MIT
// What the parser needs of a sequence of tokens, and constant integer expressions over it.
// A stream belongs to one parser and one thread, and borrows its tokens. Errors: false, and fail() has written into
// `why` what is wrong in which line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "toolchain/ptx/lexer.h"

namespace hpe::ptx {

class TokenStream {
protected:
    TokenStream(const std::vector<Token>& tokens, std::string& why) : tokens_(tokens), why_(why) {}

    const Token& now() const { return tokens_[at_]; }
    const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
    void advance() {
        if (at_ + 1 < tokens_.size()) at_++;
    }
    bool take(char c) {
        if (!now().is(c)) return false;
        advance();
        return true;
    }
    bool take_dot(const char* name) {
        if (!now().is_dot(name)) return false;
        advance();
        return true;
    }
    bool take_name(std::string& out) {
        if (now().kind != Token::Kind::Name) return fail("a name was expected");
        out = std::string(now().text);
        advance();
        return true;
    }
    std::string word_text() const { return (now().kind == Token::Kind::Dot ? "." : "") + std::string(now().text); }
    std::string word() {
        std::string text = word_text();
        advance();
        return text;
    }
    bool fail(const char* what) {
        why_ = "line " + std::to_string(now().line) + ": " + what;
        if (now().kind != Token::Kind::End) why_ += " before '" + std::string(now().text.substr(0, 40)) + "'";
        return false;
    }

    // Integer expressions as C has them; wraps around in 64 bits.
    bool constant(std::int64_t& out, int depth) { return binary(out, 0, depth); }

    // What follows a name: + and - terms only.
    bool constant_sum(std::int64_t& total) {
        while (now().is('+') || now().is('-')) {
            const bool minus = now().is('-');
            advance();
            std::int64_t term = 0;
            if (!binary(term, 6, 0)) return false;
            const auto a = static_cast<std::uint64_t>(total), b = static_cast<std::uint64_t>(term);
            total = static_cast<std::int64_t>(minus ? a - b : a + b);
        }
        return true;
    }

private:
    static int level(const Token& t) {
        if (t.kind != Token::Kind::Punctuation) return -1;
        if (t.text == "<<" || t.text == ">>") return 4;
        switch (t.text[0]) {
            case '|': return 1;
            case '^': return 2;
            case '&': return 3;
            case '+':
            case '-': return 5;
            case '*':
            case '/':
            case '%': return 6;
            default: return -1;
        }
    }

    bool binary(std::int64_t& out, int lowest, int depth) {
        if (!unary(out, depth)) return false;
        while (level(now()) >= lowest && level(now()) > 0) {
            const std::string_view op = now().text;
            const int l = level(now());
            advance();
            std::int64_t right = 0;
            if (!binary(right, l + 1, depth + 1)) return false;
            const auto a = static_cast<std::uint64_t>(out), b = static_cast<std::uint64_t>(right);
            switch (op[0]) {
                case '|': out = static_cast<std::int64_t>(a | b); break;
                case '^': out = static_cast<std::int64_t>(a ^ b); break;
                case '&': out = static_cast<std::int64_t>(a & b); break;
                case '+': out = static_cast<std::int64_t>(a + b); break;
                case '-': out = static_cast<std::int64_t>(a - b); break;
                case '*': out = static_cast<std::int64_t>(a * b); break;
                case '<': out = static_cast<std::int64_t>(b < 64 ? a << b : 0); break;
                case '>': out = b < 64 ? out >> b : (out < 0 ? -1 : 0); break;
                default:
                    if (right == 0 || right == -1) return fail("a division that has no value");
                    out = op[0] == '/' ? out / right : out % right;
            }
        }
        return true;
    }

    bool unary(std::int64_t& out, int depth) {
        if (depth > 200) return fail("an expression nested too deep");
        if (take('-')) {
            if (!unary(out, depth + 1)) return false;
            out = static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(out));
            return true;
        }
        if (take('+')) return unary(out, depth + 1);
        if (take('~')) {
            if (!unary(out, depth + 1)) return false;
            out = ~out;
            return true;
        }
        if (take('!')) {
            if (!unary(out, depth + 1)) return false;
            out = out == 0;
            return true;
        }
        if (take('(')) {
            if (now().kind == Token::Kind::Dot) {  // a cast: (.s64)
                advance();
                return take(')') ? unary(out, depth + 1) : fail("')' was expected");
            }
            if (!binary(out, 0, depth + 1)) return false;
            return take(')') || fail("')' was expected");
        }
        if (now().kind != Token::Kind::Integer) return fail("a constant was expected");
        out = static_cast<std::int64_t>(now().value);
        advance();
        return true;
    }

    const std::vector<Token>& tokens_;
    std::string& why_;
    std::size_t at_ = 0;
};

}  // namespace hpe::ptx
