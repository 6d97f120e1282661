#include "tests/support/death.hpp"

#include <sluice/executor.hpp>
#include <sluice/file.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <unistd.h>

namespace {

std::unique_ptr<sluice::executor> make_executor() { return std::move(sluice::executor::create()).value(); }

sluice::file silent_pipe() {
    int ends[2];
    if (pipe(ends) != 0) _exit(3);
    return sluice::file::adopt(ends[0], "a pipe");
}

/// Closes a file while a read of it waits for data that never comes.
sluice::task<void> close_under_a_reader() {
    auto source = silent_pipe();
    sluice::scope children;
    children.spawn([](sluice::file& from) -> sluice::task<void> {
        std::array<std::byte, 16> buffer;
        static_cast<void>(co_await from.read(0, buffer));
    }(source));
    co_await sluice::yield{};
    static_cast<void>(co_await source.close());
}

sluice::task<void> use_moved_from() {
    auto first = silent_pipe();
    const auto second = std::move(first);
    static_cast<void>(co_await first.sync()); // NOLINT(bugprone-use-after-move): the point of the test
}

} // namespace

TEST_CASE("File.adopting_without_an_executor_stops_the_process") {
    CHECK_BREAKS_CONTRACT("file::adopt: called on a thread without an executor", sluice::file::adopt(0, "input"));
}

TEST_CASE("File.adopting_what_is_no_descriptor_stops_the_process") {
    CHECK_BREAKS_CONTRACT("file::adopt: not a descriptor", const auto home = make_executor();
                          sluice::file::adopt(-1, "nothing"));
}

TEST_CASE("File.closing_it_under_an_operation_stops_the_process") {
    CHECK_BREAKS_CONTRACT("file: closed while operations on it are in flight", const auto home = make_executor();
                          sluice::sync_wait(*home, close_under_a_reader()));
}

TEST_CASE("File.using_one_that_was_moved_from_stops_the_process") {
    CHECK_BREAKS_CONTRACT("file: used when closed or moved from", const auto home = make_executor();
                          sluice::sync_wait(*home, use_moved_from()));
}

TEST_CASE("File.destroying_it_on_another_thread_stops_the_process") {
    CHECK_BREAKS_CONTRACT("file: closed or destroyed on another thread", const auto home = make_executor();
                          std::optional<sluice::file> source(silent_pipe());
                          std::thread([&] { source.reset(); }).join());
}
