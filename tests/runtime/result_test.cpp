#include <sluice/result.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

using sluice::errc;
using sluice::result;

namespace {

/// Counts its living objects, so that a lost or doubled destructor shows.
struct counted {
    static inline int alive = 0;
    int value = 0;

    explicit counted(int v) : value(v) { ++alive; }
    counted(const counted& other) : value(other.value) { ++alive; }
    counted(counted&& other) noexcept : value(std::exchange(other.value, -1)) { ++alive; }
    counted& operator=(const counted&) = default;
    counted& operator=(counted&&) = default;
    ~counted() { --alive; }
};

result<int> half(int n) {
    if (n % 2 != 0) return errc::invalid_argument;
    return n / 2;
}

} // namespace

TEST_CASE("Result.holds_a_value") {
    result<int> r = 7;
    REQUIRE(r.has_value());
    CHECK(static_cast<bool>(r));
    CHECK(*r == 7);
    CHECK(r.value() == 7);
    CHECK(r.value_or(9) == 7);
    *r = 8;
    CHECK(std::as_const(r).value() == 8);
}

TEST_CASE("Result.holds_an_error") {
    const result<int> r = sluice::error(errc::closed, "the detail");
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error() == errc::closed);
    CHECK(r.error().detail() == "the detail");
    CHECK(r.value_or(9) == 9);
}

TEST_CASE("Result.converts_from_any_kind_of_code") {
    CHECK(result<int>(errc::canceled).error() == errc::canceled);
    CHECK(result<int>(std::make_error_code(std::errc::io_error)).error() == std::errc::io_error);
    CHECK(result<void>(errc::canceled).error() == errc::canceled);
    CHECK(result<void>(std::make_error_code(std::errc::io_error)).error() == std::errc::io_error);
}

TEST_CASE("Result.value_throws_a_system_error_with_the_code_and_the_detail") {
    result<int> r = sluice::error::from_errno(ENOENT, "open \"/nowhere\"");
    try {
        static_cast<void>(r.value());
        FAIL("value() of an error returned");
    } catch (const std::system_error& e) {
        CHECK(e.code() == std::errc::no_such_file_or_directory);
        CHECK(std::string(e.what()).find("open \"/nowhere\"") != std::string::npos);
    }
    const result<void> nothing = errc::closed;
    CHECK_THROWS_AS(nothing.value(), std::system_error);
}

TEST_CASE("Result.default_is_success") {
    CHECK(*result<int>() == 0);
    CHECK(result<std::string>()->empty());
    CHECK(result<void>().has_value());
    STATIC_REQUIRE_FALSE(std::is_default_constructible_v<result<counted>>);
}

TEST_CASE("Result.carries_a_type_that_only_moves") {
    result<std::unique_ptr<int>> r = std::make_unique<int>(3);
    REQUIRE(r);
    CHECK(**r == 3);
    const std::unique_ptr<int> taken = *std::move(r);
    CHECK(*taken == 3);
    STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<result<std::unique_ptr<int>>>);
    STATIC_REQUIRE(std::is_nothrow_move_constructible_v<result<std::unique_ptr<int>>>);
}

TEST_CASE("Result.destroys_exactly_what_it_holds") {
    REQUIRE(counted::alive == 0);
    {
        result<counted> a = counted(1);
        result<counted> b = a;
        CHECK(counted::alive == 2);
        result<counted> c = std::move(a);
        CHECK(counted::alive == 3);
        CHECK(c->value == 1);
        b = errc::closed;
        CHECK(counted::alive == 2);
    }
    CHECK(counted::alive == 0);
}

TEST_CASE("Result.assignment_crosses_between_value_and_error") {
    result<std::string> value = std::string("a value that is too long for a small string buffer");
    result<std::string> failed = sluice::error(errc::closed, "why");
    result<std::string> r = value;
    r = failed;
    REQUIRE_FALSE(r);
    CHECK(r.error().detail() == "why");
    r = value;
    REQUIRE(r);
    CHECK(*r == *value);
    r = std::move(failed);
    CHECK(r.error() == errc::closed);
    r = std::string("again");
    CHECK(*r == "again");
}

TEST_CASE("Result.assignment_to_itself_changes_nothing") {
    result<std::string> r = std::string("kept");
    const result<std::string>& same = r;
    r = same;
    CHECK(*r == "kept");
    result<std::string>& again = r;
    r = std::move(again);
    CHECK(*r == "kept");
}

TEST_CASE("Result.and_then_runs_only_on_success") {
    CHECK(*half(8).and_then(half) == 2);
    int calls = 0;
    const auto r = half(3).and_then([&](int n) {
        ++calls;
        return half(n);
    });
    CHECK(r.error() == errc::invalid_argument);
    CHECK(calls == 0);
    CHECK(*result<void>().and_then([] { return half(4); }) == 2);
    CHECK(result<void>(errc::closed).and_then([] { return half(4); }).error() == errc::closed);
}

TEST_CASE("Result.transform_maps_the_value_and_passes_the_error") {
    CHECK(*half(8).transform([](int n) { return std::to_string(n); }) == "4");
    CHECK(half(3).transform([](int n) { return n + 1; }).error() == errc::invalid_argument);
    int seen = 0;
    const result<void> r = half(8).transform([&](int n) { seen = n; });
    CHECK(r.has_value());
    CHECK(seen == 4);
}

TEST_CASE("Result.or_else_runs_only_on_failure") {
    const auto zero = [](const sluice::error&) { return result<int>(0); };
    CHECK(*half(8).or_else(zero) == 4);
    CHECK(*half(3).or_else(zero) == 0);
    const auto tolerate_closed = [](const sluice::error& e) {
        return e == errc::closed ? result<void>() : result<void>(e);
    };
    CHECK(result<void>(errc::closed).or_else(tolerate_closed).has_value());
    CHECK(result<void>(errc::canceled).or_else(tolerate_closed).error() == errc::canceled);
}

TEST_CASE("Result.error_of_a_temporary_is_moved_out") {
    const sluice::error e = result<int>(sluice::error(errc::closed, "kept")).error();
    CHECK(e.detail() == "kept");
    CHECK(result<void>(sluice::error(errc::closed, "also")).error().detail() == "also");
}
