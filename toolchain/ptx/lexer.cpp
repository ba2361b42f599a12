// SPDX-License-Identifier: MIT
// The PTX lexer.
#include "toolchain/ptx/lexer.h"

#include <charconv>
#include <cstring>

namespace hpe::ptx {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%'; }
bool continues_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Lexer {
public:
    Lexer(std::string_view text, std::vector<Token>& out, std::string& why) : text_(text), out_(out), why_(why) {}

    bool run() {
        while (skip_blank()) {
            if (!one()) return false;
        }
        if (failed_) return false;
        add(Token::Kind::End, at_, at_);
        return true;
    }

private:
    char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

    bool fail(const char* what) {
        why_ = "line " + std::to_string(line_) + ": " + what;
        failed_ = true;
        return false;
    }

    Token& add(Token::Kind kind, std::size_t begin, std::size_t end) {
        Token& t = out_.emplace_back();
        t.kind = kind;
        t.line = line_;
        t.text = text_.substr(begin, end - begin);
        return t;
    }

    // False at the end of the text.
    bool skip_blank() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') {
                line_++;
                at_++;
            } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
                at_++;
            } else if (c == '/' && peek(1) == '/') {
                skip_line();
            } else if (c == '#' && (out_.empty() || out_.back().line != line_)) {
                skip_line();
            } else if (c == '/' && peek(1) == '*') {
                const auto end = text_.find("*/", at_ + 2);
                if (end == std::string_view::npos) return fail("comment without an end");
                for (; at_ < end + 2; at_++) line_ += text_[at_] == '\n';
            } else {
                return true;
            }
        }
        return false;
    }

    void skip_line() {
        while (at_ < text_.size() && text_[at_] != '\n') at_++;
    }

    void name_end(std::size_t& end) const {
        while (end < text_.size() && continues_name(text_[end])) end++;
    }

    bool one() {
        const char c = peek();
        const std::size_t begin = at_;
        if (starts_name(c)) {
            std::size_t end = at_ + 1;
            name_end(end);
            add(Token::Kind::Name, begin, end);
            at_ = end;
            return true;
        }
        if (c == '.' && (continues_name(peek(1)))) {
            // ".5" would be a decimal number, but PTX has none that begins so; ".1d" is a modifier.
            std::size_t end = at_ + 1;
            name_end(end);
            while (end + 2 < text_.size() && text_[end] == ':' && text_[end + 1] == ':' &&
                   continues_name(text_[end + 2])) {
                end += 2;
                name_end(end);
            }
            add(Token::Kind::Dot, begin + 1, end);
            at_ = end;
            return true;
        }
        if (is_digit(c)) return number();
        if (c == '"') {
            const auto end = text_.find('"', at_ + 1);
            if (end == std::string_view::npos) return fail("string without an end");
            add(Token::Kind::Text, begin, end + 1);
            for (; at_ < end + 1; at_++) line_ += text_[at_] == '\n';
            return true;
        }
        static constexpr std::string_view punctuation = "{}()[]<>,;:=+-*/%&|^~!?@.";
        if (punctuation.find(c) == std::string_view::npos) return fail("a character that PTX does not have");
        if ((c == '<' || c == '>') && peek(1) == c) {
            add(Token::Kind::Punctuation, begin, begin + 2);
            at_ += 2;
            return true;
        }
        add(Token::Kind::Punctuation, begin, begin + 1);
        at_++;
        return true;
    }

    bool number() {
        const std::size_t begin = at_;
        if (peek() == '0' && (peek(1) == 'f' || peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D')) {
            const bool wide = peek(1) == 'd' || peek(1) == 'D';
            std::size_t end = at_ + 2;
            while (end < text_.size() && is_hex(text_[end])) end++;
            if (end - at_ - 2 != (wide ? 16u : 8u)) return fail("a hexadecimal float of the wrong length");
            std::uint64_t bits = 0;
            std::from_chars(text_.data() + at_ + 2, text_.data() + end, bits, 16);
            add(wide ? Token::Kind::Float64 : Token::Kind::Float32, begin, end).value = bits;
            at_ = end;
            return true;
        }
        int base = 10;
        std::size_t digits = at_;
        if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) {
            base = 16;
            digits = at_ + 2;
        } else if (peek() == '0' && (peek(1) == 'b' || peek(1) == 'B')) {
            base = 2;
            digits = at_ + 2;
        } else if (peek() == '0' && is_digit(peek(1))) {
            base = 8;
            digits = at_ + 1;
        }
        std::size_t end = digits;
        while (end < text_.size() && is_hex(text_[end])) end++;
        if (base == 10) {
            end = digits;
            while (end < text_.size() && is_digit(text_[end])) end++;
            if (end < text_.size() && (text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E') && is_decimal(end))
                return decimal(begin);
        }
        std::uint64_t value = 0;
        const auto [stop, error] = std::from_chars(text_.data() + digits, text_.data() + end, value, base);
        if (error != std::errc{} || stop != text_.data() + end) return fail("a malformed number");
        if (end < text_.size() && text_[end] == 'U') end++;
        if (end < text_.size() && continues_name(text_[end])) return fail("a malformed number");
        add(Token::Kind::Integer, begin, end).value = value;
        at_ = end;
        return true;
    }

    // "1.5", "1e3", "1." are decimals; ".version 9.0" is one too, and its text is what counts there.
    bool is_decimal(std::size_t end) const {
        if (text_[end] == '.') return end + 1 >= text_.size() || !is_letter(text_[end + 1]);
        return end + 1 < text_.size() && (is_digit(text_[end + 1]) || text_[end + 1] == '-' || text_[end + 1] == '+');
    }

    bool decimal(std::size_t begin) {
        double value = 0;
        const auto [stop, error] = std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
        if (error != std::errc{}) return fail("a malformed number");
        const auto end = static_cast<std::size_t>(stop - text_.data());
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        add(Token::Kind::Float64, begin, end).value = bits;
        at_ = end;
        return true;
    }

    std::string_view text_;
    std::vector<Token>& out_;
    std::string& why_;
    std::size_t at_ = 0;
    std::uint32_t line_ = 1;
    bool failed_ = false;
};

}  // namespace

bool tokenize(std::string_view text, std::vector<Token>& out, std::string& why) { return Lexer(text, out, why).run(); }

}  // namespace hpe::ptx
