// SPDX-License-Identifier: MIT
// Strings of JSON from any bytes, and names of files.
#include "shim/observe/output.h"

#include <unistd.h>

#include <string>

#include "tests/unit/catch.h"

using namespace hpe;

namespace {

std::string json(std::string_view text) { return json_text(text); }

}  // namespace

TEST_CASE("what is UTF-8 stays as it is, but for what JSON reserves") {
    for (const std::string text : {"plain", "\xc3\xa9", "\xc2\x80\xdf\xbf", "\xe0\xa0\x80\xef\xbf\xbf", "\xed\x9f\xbf",
                                   "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\x7f"}) {
        CHECK(json(text) == '"' + text + '"');
    }
    CHECK(json("a\"b\\c\n\x1f") == R"("a\"b\\c\u000a\u001f")");
    CHECK(json(std::string_view("\0", 1)) == R"("\u0000")");
    CHECK(json("") == "null");
}

TEST_CASE("a byte that is part of no character becomes U+FFFD") {
    CHECK(json("a\xe9z") == R"("a\ufffdz")");
    CHECK(json("\x80\xbf") == R"("\ufffd\ufffd")");
    CHECK(json("\xff\xfe") == R"("\ufffd\ufffd")");
    // Cut off, and followed by what needs care itself.
    for (const std::string_view text : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
        std::string wanted = "\"";
        for (std::size_t i = 0; i < text.size(); ++i) wanted += "\\ufffd";
        CHECK(json(text) == wanted + '"');
        CHECK(json(std::string(text) + '"') == wanted + R"(\"")");
        CHECK(json(std::string(text) + "\xc3\xa9") == wanted + "\xc3\xa9\"");
    }
    // Longer than it need be, a surrogate, beyond U+10FFFF.
    CHECK(json("\xc0\xaf\xc1\xbf") == R"("\ufffd\ufffd\ufffd\ufffd")");
    for (const auto* text : {"\xe0\x9f\xbf", "\xed\xa0\x80"}) CHECK(json(text) == R"("\ufffd\ufffd\ufffd")");
    for (const auto* text : {"\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
        CHECK(json(text) == R"("\ufffd\ufffd\ufffd\ufffd")");
    }
}

TEST_CASE("every %p is the process id") {
    const auto process = std::to_string(getpid());
    CHECK(path_of_output("/a/%p/%p-%%p.json") == "/a/" + process + "/" + process + "-%" + process + ".json");
    CHECK(path_of_output("%p") == process);
    CHECK(path_of_output("100%") == "100%");
}
