#include "tests/support/death.hpp"

#include <sluice/contract.hpp>
#include <sluice/result.hpp>

#include <catch2/catch_test_macros.hpp>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>

using sluice::errc;
using sluice::result;

TEST_CASE("Crash.a_child_that_returns_is_not_a_crash") {
    const auto end = sluice::testing::die_in_child(+[] { std::fputs("said something\n", stderr); });
    CHECK(end.signal == 0);
    CHECK(end.exit_status == 0);
    CHECK(end.errors == "said something\n");
}

TEST_CASE("Crash.a_child_that_throws_is_not_a_crash") {
    const auto end = sluice::testing::die_in_child(+[] { throw std::runtime_error("thrown"); });
    CHECK(end.signal == 0);
    CHECK(end.exit_status == 1);
    CHECK(end.errors == "exception: thrown\n");
}

TEST_CASE("Contract.names_message_expression_file_line_and_function") {
    const auto end = sluice::testing::die_in_child(+[] {
        const int lanes = 3;
        SLUICE_EXPECTS(lanes < 3, "lanes: at most 2");
    });
    CHECK(end.signal == SIGABRT);
    CHECK(end.errors.find("sluice: broken contract: lanes: at most 2 (lanes < 3) at ") == 0);
    CHECK(end.errors.find("result_contract_test.cpp:") != std::string::npos);
    CHECK(end.errors.find(" in operator()") != std::string::npos);
    CHECK(end.errors.back() == '\n');
}

TEST_CASE("Contract.a_kept_contract_costs_nothing_but_the_check") {
    int evaluated = 0;
    SLUICE_EXPECTS(++evaluated == 1, "evaluated once");
    CHECK(evaluated == 1);
}

TEST_CASE("Contract.a_message_longer_than_the_buffer_is_cut_and_still_ends_the_line") {
    const auto end = sluice::testing::die_in_child(+[] {
        static const std::string message(4096, 'x');
        SLUICE_EXPECTS(message.empty(), message.c_str());
    });
    CHECK(end.signal == SIGABRT);
    CHECK(end.errors.find("sluice: broken contract: xxx") == 0);
    CHECK(end.errors.size() <= 1024);
    CHECK(end.errors.back() == '\n');
}

TEST_CASE("Result.reading_the_value_of_an_error_stops_the_process") {
    CHECK_BREAKS_CONTRACT("the value of a result that holds an error", result<int> r = errc::closed; *r = 1);
    CHECK_BREAKS_CONTRACT("the value of a result that holds an error", const result<std::string> r = errc::closed;
                          std::fprintf(stderr, "%zu", r->size()));
    CHECK_BREAKS_CONTRACT("the value of a result that holds an error", const result<void> r = errc::closed; *r);
}

TEST_CASE("Result.reading_the_error_of_a_value_stops_the_process") {
    CHECK_BREAKS_CONTRACT("error() of a result that holds a value", const result<int> r = 1;
                          std::fputs(r.error().message().c_str(), stderr));
    CHECK_BREAKS_CONTRACT("error() of a result that holds a value", const result<void> r;
                          std::fputs(r.error().message().c_str(), stderr));
    CHECK_BREAKS_CONTRACT("error() of a result that holds a value",
                          std::fputs(result<int>(1).error().message().c_str(), stderr));
}

TEST_CASE("Error.an_errno_value_that_is_not_positive_stops_the_process") {
    CHECK_BREAKS_CONTRACT("errno values are positive", static_cast<void>(sluice::error::from_errno(-5)));
    CHECK_BREAKS_CONTRACT("errno values are positive", static_cast<void>(sluice::error::from_errno(0)));
}
