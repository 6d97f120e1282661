#pragma once

#include <sluice/executor.hpp>
#include <sluice/sleep.hpp>

#include "net/background.hpp"
#include "net/socket.hpp"
#include "net/wire.hpp"

#include <array>
#include <chrono>
#include <cstddef>

namespace sluice::net {

class tcp_listener;

/// A socket that was accepted, until its peer has greeted. Each has a coroutine and a deadline of its own, so that a
/// slow peer holds nobody up.
class tcp_reception {
public:
    tcp_reception(tcp_listener& listener, executor& home, stream_socket socket);
    ~tcp_reception();

    void start(std::chrono::nanoseconds limit) noexcept;
    bool done() const noexcept { return done_; }

private:
    struct timer : detail::timer_node {
        tcp_reception* owner = nullptr;
    };
    background run();
    static void on_deadline(detail::timer_node& node) noexcept;

    tcp_listener& listener_;
    executor& home_;
    stream_socket socket_;
    timer timer_;
    bool expired_ = false;
    bool done_ = false;
    detail::stream_operation* waits_for_ = nullptr;
    std::array<std::byte, greeting_bytes> bytes_{};
    background loop_;
};

} // namespace sluice::net
