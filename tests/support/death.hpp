#pragma once

#include <string>

namespace sluice::testing {

/// How a child process ended, and what it wrote to standard error.
struct death {
    int signal = 0;      ///< the signal that killed it, 0 when it ended by itself
    int exit_status = 0; ///< its exit status when no signal killed it
    std::string errors;  ///< its standard error
};

/// Forks, runs `body` in the child and waits for its end. The child leaves no core file and is killed with SIGALRM after
/// a minute, so that a test of a crash can't hang. A `body` that returns makes the child end with status 0.
///
/// Call it from a process that has no other threads.
death die_in_child(void (*body)());

} // namespace sluice::testing

/// Checks that `statement`, run in a child process, breaks a contract whose message contains `text`.
#define CHECK_BREAKS_CONTRACT(text, ...)                                                                               \
    do {                                                                                                               \
        const auto end_of_child = ::sluice::testing::die_in_child(+[] { __VA_ARGS__; });                               \
        INFO("standard error of the child: " << end_of_child.errors);                                                  \
        CHECK(end_of_child.signal == SIGABRT);                                                                         \
        CHECK(end_of_child.errors.find("sluice: broken contract: ") != std::string::npos);                             \
        CHECK(end_of_child.errors.find(text) != std::string::npos);                                                    \
    } while (false)
