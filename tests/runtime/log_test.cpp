#include "runtime/log.hpp"
#include "tests/support/death.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using sluice::log_level;

namespace {

struct recorder {
    std::vector<std::string> lines;
    static void take(void* context, log_level level, std::string_view message) noexcept {
        static_cast<recorder*>(context)->lines.push_back(std::string(sluice::to_string(level)) + "|" + std::string(message));
    }
    explicit recorder(log_level level) {
        sluice::set_log_level(level);
        sluice::set_log_handler(&take, this);
    }
    ~recorder() {
        sluice::set_log_handler(nullptr, nullptr);
        sluice::set_log_level(log_level::warning);
    }
    recorder(const recorder&) = delete;
    recorder& operator=(const recorder&) = delete;
};

void say_one_of_each() {
    SLUICE_LOG(error, "an error");
    SLUICE_LOG(warning, "a warning");
    SLUICE_LOG(info, "an info");
    SLUICE_LOG(debug, "a debug");
}

std::string errors_with(const char* value, void (*body)()) {
    if (value == nullptr) unsetenv("SLUICE_LOG");
    else setenv("SLUICE_LOG", value, 1);
    // A child starts with whatever the tests before have set; the mark makes it read the environment again.
    sluice::detail::log_threshold = sluice::detail::log_threshold_unread;
    const auto end = sluice::testing::die_in_child(body);
    sluice::set_log_level(log_level::warning);
    unsetenv("SLUICE_LOG");
    CHECK(end.exit_status == 0);
    CHECK(end.signal == 0);
    return end.errors;
}

} // namespace

TEST_CASE("Log.writes_warnings_and_errors_to_standard_error_by_default") {
    const char* expected = "sluice: error: an error\nsluice: warning: a warning\n";
    CHECK(errors_with(nullptr, &say_one_of_each) == expected);
    CHECK(errors_with("", &say_one_of_each) == expected);
}

TEST_CASE("Log.takes_its_level_from_the_environment") {
    CHECK(errors_with("off", &say_one_of_each).empty());
    CHECK(errors_with("error", &say_one_of_each) == "sluice: error: an error\n");
    CHECK(errors_with("info", &say_one_of_each) ==
          "sluice: error: an error\nsluice: warning: a warning\nsluice: info: an info\n");
    CHECK(errors_with("debug", &say_one_of_each) ==
          "sluice: error: an error\nsluice: warning: a warning\nsluice: info: an info\nsluice: debug: a debug\n");
}

TEST_CASE("Log.reports_a_wrong_value_of_the_environment_once") {
    CHECK(errors_with("Verbose", &say_one_of_each) ==
          "sluice: warning: SLUICE_LOG=Verbose: not a level; allowed are off, error, warning, info and debug; using "
          "warning\nsluice: error: an error\nsluice: warning: a warning\n");
    // The first message may be one that isn't said itself.
    const std::string quiet = errors_with("loud", +[] { SLUICE_LOG(debug, "hidden"); });
    CHECK(quiet.find("SLUICE_LOG=loud: not a level") != std::string::npos);
    CHECK(quiet.find("hidden") == std::string::npos);
}

TEST_CASE("Log.the_program_overrides_the_environment") {
    CHECK(errors_with("debug", +[] {
              sluice::set_log_level(log_level::error);
              say_one_of_each();
          }) == "sluice: error: an error\n");
}

TEST_CASE("Log.keeps_a_message_on_one_line") {
    CHECK(errors_with(nullptr, +[] { SLUICE_LOG(warning, "name 'a\nsluice: error: b'"); }) ==
          "sluice: warning: name 'a sluice: error: b'\n");
}

TEST_CASE("Log.hands_joined_parts_to_the_handler") {
    recorder log(log_level::info);
    const std::string name = "x";
    SLUICE_LOG(info, "pool ", name, ": ", std::to_string(42), " bytes");
    SLUICE_LOG(debug, "not this");
    CHECK(log.lines == std::vector<std::string>{"info|pool x: 42 bytes"});
}

TEST_CASE("Log.evaluates_nothing_below_the_level") {
    recorder log(log_level::warning);
    int evaluated = 0;
    SLUICE_LOG(info, std::to_string(++evaluated));
    SLUICE_LOG_ONCE(info, std::to_string(++evaluated));
    CHECK(evaluated == 0);
    SLUICE_LOG(warning, std::to_string(++evaluated));
    CHECK(evaluated == 1);
}

TEST_CASE("Log.says_once_what_many_threads_find_out") {
    recorder log(log_level::warning);
    const auto find_out = [] {
        for (int i = 0; i < 100; ++i) SLUICE_LOG_ONCE(warning, "found out");
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(find_out);
    for (std::thread& each : threads) each.join();
    CHECK(log.lines == std::vector<std::string>{"warning|found out"});
}

TEST_CASE("Log.a_message_that_was_off_is_still_said_once_when_it_is_on") {
    const auto find_out = [] { SLUICE_LOG_ONCE(info, "chosen"); };
    recorder log(log_level::warning);
    find_out();
    CHECK(log.lines.empty());
    sluice::set_log_level(log_level::info);
    find_out();
    find_out();
    CHECK(log.lines == std::vector<std::string>{"info|chosen"});
}

TEST_CASE("Log.serialises_handler_calls_of_several_threads") {
    recorder log(log_level::warning); // its vector is not thread-safe
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([] {
            for (int n = 0; n < 250; ++n) SLUICE_LOG(warning, "line");
        });
    for (std::thread& each : threads) each.join();
    CHECK(log.lines.size() == 1000);
}

TEST_CASE("Log.drops_what_is_said_inside_a_handler") {
    static int calls;
    calls = 0;
    sluice::set_log_handler(
        [](void*, log_level, std::string_view) noexcept {
            ++calls;
            SLUICE_LOG(error, "again");
        },
        nullptr);
    SLUICE_LOG(error, "first");
    sluice::set_log_handler(nullptr, nullptr);
    CHECK(calls == 1);
}

TEST_CASE("Log.a_handler_that_sets_a_handler_stops_the_process") {
    CHECK_BREAKS_CONTRACT("called from inside a log handler",
                          sluice::set_log_handler([](void*, log_level, std::string_view) noexcept {
                              sluice::set_log_handler(nullptr, nullptr);
                          }, nullptr);
                          SLUICE_LOG(error, "first"));
}
