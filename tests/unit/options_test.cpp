// SPDX-License-Identifier: MIT
// Options: sizes, and what is said of a bad value.
#include "shim/process/options.h"

#include <cstdlib>

#include "shim/transfer/staging.h"
#include "tests/unit/catch.h"

using namespace hpe;

namespace {

class Environment {
public:
    Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Environment() { unsetenv(name_); }

private:
    const char* name_;
};

}  // namespace

TEST_CASE("sizes take K, M and G and nothing else") {
    std::size_t bytes = 0;
    CHECK((parse_size("4096", bytes) && bytes == 4096));
    CHECK((parse_size("64K", bytes) && bytes == 65536));
    CHECK((parse_size("3m", bytes) && bytes == 3u << 20));
    CHECK((parse_size("1G", bytes) && bytes == 1u << 30));
    for (const char* bad :
         {"", "K", "-1", "+4K", " 4K", "4KB", "4K ", "0x10", "1e3", "99999999999999999999", "17179869184G"}) {
        INFO(bad);
        CHECK_FALSE(parse_size(bad, bytes));
    }
}

TEST_CASE("defaults, and an empty variable counts as not set") {
    Environment empty("HPE_PROTOCOL", "");
    Options options;
    std::string problem;
    REQUIRE(parse_options(options, problem));
    CHECK(options.protocol == "rolling");
    CHECK(options.block_size == 0);
    CHECK(options.rolling_size == 0);
    CHECK(options.read_ahead);
    CHECK(options.report.empty());
    CHECK(options.trace.empty());
    CHECK(options.log == log::Level::Warn);
    CHECK(options.pinned_limit == 0);
    CHECK(options.staging_threads == staging::kAutomatic);
    CHECK(options.staging_block == 4 << 20);
}

TEST_CASE("a bad value is named with what is accepted") {
    const struct {
        const char *variable, *value, *accepted;
    } cases[] = {
        {"HPE_PROTOCOL", "eager", "batch, lazy, rolling or off"},
        {"HPE_BLOCK_SIZE", "1000", "4K to 1G"},
        {"HPE_BLOCK_SIZE", "2G", "4K to 1G"},
        {"HPE_BLOCK_SIZE", "64 K", "4K to 1G"},
        {"HPE_READ_AHEAD", "maybe", "on or off"},
        {"HPE_ROLLING_SIZE", "0", "auto, or 1"},
        {"HPE_ROLLING_SIZE", "many", "auto, or 1"},
        {"HPE_PINNED_LIMIT", "1K", "auto, or 1M"},
        {"HPE_STAGING_THREADS", "100", "auto, or 0 to 64"},
        {"HPE_STAGING_BLOCK", "128M", "4K to 64M"},
        {"HPE_TRACE", "-", "a path"},
        {"HPE_LOG", "loud", "error, warn, info or debug"},
    };
    for (const auto& c : cases) {
        Environment set(c.variable, c.value);
        Options options;
        std::string problem;
        INFO(c.variable << "=" << c.value);
        CHECK_FALSE(parse_options(options, problem));
        CHECK(problem.find(std::string(c.variable) + "=" + c.value) != std::string::npos);
        CHECK(problem.find(c.accepted) != std::string::npos);
        CHECK(problem.find('\n') == std::string::npos);
    }
}

TEST_CASE("the description names every variable") {
    const auto text = describe_options();
    for (const char* variable :
         {"HPE_PROTOCOL", "HPE_BLOCK_SIZE", "HPE_ROLLING_SIZE", "HPE_READ_AHEAD", "HPE_REPORT", "HPE_TRACE", "HPE_LOG",
          "HPE_PINNED_LIMIT", "HPE_STAGING_THREADS", "HPE_STAGING_BLOCK"}) {
        CHECK(text.find(variable) != std::string::npos);
    }
}
