#pragma once

#include <catch2/catch_test_macros.hpp>

// For results of co_await. The expression stands outside of Catch2's macros, which put theirs into
// __builtin_constant_p too, where gcc 12 awaits it once more.

/// Checks that the result is not an error, and shows the error's message otherwise.
#define CHECK_SUCCESS(...)                                                                                             \
    do {                                                                                                               \
        const auto result_to_check = (__VA_ARGS__);                                                                    \
        INFO(#__VA_ARGS__ << ": " << (result_to_check ? "success" : result_to_check.error().message()));               \
        CHECK(result_to_check.has_value());                                                                            \
    } while (false)

/// Checks that the result is an error.
#define CHECK_FAILURE(...)                                                                                             \
    do {                                                                                                               \
        const auto result_to_check = (__VA_ARGS__);                                                                    \
        CHECK_FALSE(result_to_check.has_value());                                                                      \
    } while (false)
