#pragma once

#include <sluice/connection.hpp>
#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>
#include <sluice/task.hpp>

#include "tests/conformance/buffer.hpp"
#include "tests/conformance/provider.hpp"
#include "tests/conformance/verify.hpp"
#include "tests/conformance/watchdog.hpp"

#include <functional>
#include <optional>
#include <string>

namespace sluice::conformance {

/// What one end of a test runs: a plain task over its connection. The coroutine must not use captures; what both ends
/// share is passed as arguments by the caller's function object.
using side = std::function<task<void>(runtime&, connection&)>;

struct pair_options {
    connection_options client{};
    connection_options server{};
    bool ends_by_itself = false; ///< the client's connection is not closed for it at the end
};

/// Runs `client` on executor 0 and `server` on executor 1 of a fresh runtime, each with its end of one connection, and
/// fails the test case with what the ends threw. At the end the client's connection is closed, and the server waits for
/// that.
void run_pair(const provider& p, const side& client, const side& server, const pair_options& options = {});

/// The same with one task over a runtime with one executor, for tests that make their connections themselves.
void run_alone(const std::function<task<void>(runtime&)>& body);

/// An address to listen on, of its own.
std::string listen_address(const provider& p);
/// The options with the row's lanes.
connection_options with_lanes(const provider& p, connection_options o);
/// A runtime for a test.
runtime make_runtime(std::uint32_t executors);
namespace detail {
template <class T>
task<void> store(task<T> work, std::optional<T>& into) {
    into.emplace(co_await std::move(work));
}
} // namespace detail

/// Runs `work` and requests its stop after `turns` passes of the executor's loop; 0 is before it begins.
template <class T>
task<T> stopped_after(int turns, task<T> work) {
    std::optional<T> outcome;
    scope running;
    running.spawn(detail::store(std::move(work), outcome));
    for (int i = 0; i < turns && running.size() != 0; ++i) co_await yield();
    running.request_stop();
    static_cast<void>(co_await running.join());
    co_return std::move(*outcome);
}

// Operations as tasks, for scopes and when_all.
inline task<result<void>> read_task(connection& c, remote_view from, region_view into, operation_options o = {}) {
    co_return co_await c.read(from, into, o);
}
inline task<result<void>> write_task(connection& c, remote_view to, const_region_view from, operation_options o = {}) {
    co_return co_await c.write(to, from, o);
}
inline task<result<void>> move_task(bool writes, connection& c, remote_view remote, region_view local) {
    return writes ? write_task(c, remote, local) : read_task(c, remote, local);
}
inline task<result<void>> send_task(connection& c, const_region_view message, operation_options o = {}) {
    co_return co_await c.send(message, o);
}
inline task<result<received>> receive_task(connection& c, region_view into, operation_options o = {}) {
    co_return co_await c.receive(into, o);
}

/// Until the peer has done some operations with what is shared here; where the device serves them without a word, for a
/// while.
task<void> until_used(connection& c, std::uint64_t operations);

/// The end that only shares memory: sends its description and serves until the peer closes.
task<void> share_until_closed(connection& c, region_view memory, access granted);

} // namespace sluice::conformance
