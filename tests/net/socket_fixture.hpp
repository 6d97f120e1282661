#pragma once

#include <sluice/executor.hpp>
#include <sluice/sleep.hpp>
#include <sluice/stop.hpp>
#include <sluice/stream.hpp>
#include <sluice/sync_wait.hpp>

#include "net/socket.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace sluice::testing {

inline std::unique_ptr<executor> make_executor() { return std::move(executor::create().value()); }

/// The value, or an exception with the error's text, which fails the test case.
template <class T>
T must(result<T> r) {
    if (!r) throw std::runtime_error(r.error().message());
    return std::move(*r);
}

/// Runs `work`; asks it to stop after `limit`.
template <class T>
T run_for(executor& home, std::chrono::nanoseconds limit, task<T> work) {
    struct alarm : detail::timer_node {
        stop_source* target = nullptr;
    };
    stop_source late;
    alarm bell;
    bell.target = &late;
    bell.deadline = detail::deadline_after(limit);
    bell.fire = [](detail::timer_node& node) noexcept { static_cast<alarm&>(node).target->request_stop(); };
    home.add_timer(bell);
    T value = sync_wait(home, std::move(work), late.token());
    if (bell.linked) home.remove_timer(bell);
    return value;
}

/// Runs `work`, which must end within half a minute.
template <class T>
T run(executor& home, task<T> work) {
    return run_for(home, std::chrono::seconds(30), std::move(work));
}

struct socket_pair {
    net::stream_socket client;
    net::stream_socket server;
};

inline task<socket_pair> connect_pair(std::string_view on) {
    auto listener = must(co_await stream_listener::listen(must(address::parse(on))));
    socket_pair made;
    made.client = net::stream_socket(must(co_await stream::connect(listener.address())));
    made.server = net::stream_socket(must(co_await listener.accept()));
    co_return std::move(made);
}

/// Two ends of one connection over a listener at `on`.
inline socket_pair connected_pair(executor& home, std::string_view on) { return run(home, connect_pair(on)); }

} // namespace sluice::testing
