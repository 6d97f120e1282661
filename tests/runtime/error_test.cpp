#include <sluice/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

using sluice::condition;
using sluice::errc;
using sluice::error;

namespace {

constexpr int last_errc = static_cast<int>(errc::peer_lost);
constexpr int last_condition = static_cast<int>(condition::protocol_error);

} // namespace

TEST_CASE("Error.every_code_has_its_own_text") {
    std::set<std::string> texts;
    for (int value = 1; value <= last_errc; ++value) {
        const std::string text = error(static_cast<errc>(value)).message();
        INFO("errc " << value << ": " << text);
        CHECK(text.find("unknown") == std::string::npos);
        CHECK(texts.insert(text).second);
    }
    CHECK(error(static_cast<errc>(last_errc + 1)).message() ==
          "unknown sluice error " + std::to_string(last_errc + 1));
}

TEST_CASE("Error.every_condition_has_its_own_text") {
    std::set<std::string> texts;
    for (int value = 1; value <= last_condition; ++value) {
        const std::string text = make_error_condition(static_cast<condition>(value)).message();
        INFO("condition " << value << ": " << text);
        CHECK(text.find("unknown") == std::string::npos);
        CHECK(texts.insert(text).second);
    }
    CHECK(make_error_condition(static_cast<condition>(last_condition + 1)).message() ==
          "unknown condition " + std::to_string(last_condition + 1));
}

TEST_CASE("Error.every_own_code_is_exactly_one_condition") {
    for (int code = 1; code <= last_errc; ++code) {
        int matches = 0;
        for (int value = 1; value <= last_condition; ++value)
            matches += error(static_cast<errc>(code)) == static_cast<condition>(value);
        INFO("errc " << code);
        CHECK(matches == 1);
    }
}

TEST_CASE("Error.own_codes_map_to_the_documented_condition") {
    CHECK(error(errc::closed) == condition::closed);
    CHECK(error(errc::canceled) == condition::canceled);
    CHECK(error(errc::deadline_exceeded) == condition::timed_out);
    CHECK(error(errc::invalid_address) == condition::invalid);
    CHECK(error(errc::invalid_argument) == condition::invalid);
    CHECK(error(errc::access_denied) == condition::access_denied);
    CHECK(error(errc::out_of_range) == condition::out_of_range);
    CHECK(error(errc::message_too_long) == condition::out_of_range);
    CHECK(error(errc::protocol_error) == condition::protocol_error);
    CHECK(error(errc::version_mismatch) == condition::protocol_error);
    CHECK(error(errc::unsupported) == condition::unsupported);
    CHECK(error(errc::out_of_resources) == condition::out_of_resources);
    CHECK(error(errc::end_of_file) == condition::out_of_range);
    CHECK(error(errc::peer_lost) == condition::closed);
}

TEST_CASE("Error.kernel_codes_map_to_conditions_in_both_standard_categories") {
    const std::array<std::pair<int, condition>, 17> expected{{
        {ECANCELED, condition::canceled},
        {ETIMEDOUT, condition::timed_out},
        {ETIME, condition::timed_out},
        {EPIPE, condition::closed},
        {ECONNRESET, condition::closed},
        {EACCES, condition::access_denied},
        {EPERM, condition::access_denied},
        {EFBIG, condition::out_of_range},
        {EOPNOTSUPP, condition::unsupported},
        {ENOSYS, condition::unsupported},
        {ENOMEM, condition::out_of_resources},
        {EMFILE, condition::out_of_resources},
        {EBUSY, condition::busy},
        {ENOENT, condition::not_found},
        {EEXIST, condition::already_exists},
        {ENOSPC, condition::no_space},
        {EINVAL, condition::invalid},
    }};
    for (const auto& [value, wanted] : expected) {
        INFO("errno " << value);
        CHECK(error::from_errno(value) == wanted);
        CHECK(error(std::error_code(value, std::system_category())) == wanted);
    }
}

TEST_CASE("Error.an_unmapped_code_is_no_condition") {
    for (int value = 1; value <= last_condition; ++value) {
        CHECK_FALSE(error::from_errno(EXDEV) == static_cast<condition>(value));
        CHECK_FALSE(error(std::make_error_code(std::io_errc::stream)) == static_cast<condition>(value));
    }
}

TEST_CASE("Error.a_kernel_code_keeps_its_number_and_category") {
    const error e = error::from_errno(ENOSPC);
    CHECK(e.code().value() == ENOSPC);
    CHECK(e.code().category() == std::generic_category());
    CHECK(e == std::errc::no_space_on_device);
    CHECK_FALSE(e == errc::out_of_resources);
}

TEST_CASE("Error.message_puts_the_detail_before_the_text_of_the_code") {
    const error e(errc::out_of_range, "read of 10 bytes at 90 of a region of 96");
    CHECK(e.detail() == "read of 10 bytes at 90 of a region of 96");
    CHECK(e.message() == "read of 10 bytes at 90 of a region of 96: " + error(errc::out_of_range).message());
}

TEST_CASE("Error.without_a_detail_the_message_is_the_text_of_the_code") {
    const error e = error::from_errno(ENOENT);
    CHECK(e.detail().empty());
    CHECK(e.message() == std::make_error_code(std::errc::no_such_file_or_directory).message());
    CHECK(error(errc::closed, "").message() == error(errc::closed).message());
}

TEST_CASE("Error.a_copy_shares_the_detail_and_outlives_the_original") {
    auto original = std::make_unique<error>(errc::closed, "a detail that is too long for a small string buffer");
    const error copy = *original;
    CHECK(copy.detail().data() == original->detail().data());
    original.reset();
    CHECK(copy.detail() == "a detail that is too long for a small string buffer");
    CHECK(copy == errc::closed);
}

TEST_CASE("Error.assignment_replaces_code_and_detail_and_survives_itself") {
    error a(errc::closed, "first");
    error b = error::from_errno(EIO, "second");
    a = b;
    CHECK(a.detail() == "second");
    CHECK(a == std::errc::io_error);
    const error& same = a;
    a = same;
    CHECK(a.detail() == "second");
    b = error(errc::canceled);
    CHECK(b.detail().empty());
    CHECK(a.detail() == "second");
}

TEST_CASE("Error.a_moved_from_error_has_no_detail") {
    error a(errc::closed, "moved");
    const error b = std::move(a);
    CHECK(b.detail() == "moved");
    CHECK(a.detail().empty()); // NOLINT(bugprone-use-after-move): the state is documented by this test
}

TEST_CASE("Error.equality_between_errors_ignores_the_detail") {
    CHECK(error(errc::closed, "one") == error(errc::closed, "two"));
    CHECK_FALSE(error(errc::closed) == error(errc::canceled));
    CHECK_FALSE(error(errc::closed) == error::from_errno(1));
}
