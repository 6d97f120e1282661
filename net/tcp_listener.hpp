#pragma once

#include <sluice/event.hpp>
#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/sleep.hpp>
#include <sluice/task.hpp>

#include "net/background.hpp"
#include "net/provider.hpp"
#include "net/socket.hpp"
#include "net/tcp_connection.hpp"
#include "net/tcp_lobby.hpp"
#include "net/tcp_reception.hpp"
#include "net/wire.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace sluice::net {

/// Accepts sockets, hears their greetings, and hands out connections. All of it goes on in the background, whether or
/// not accept() is awaited, up to `backlog` connections.
class tcp_listener final : public detail::provider_listener {
public:
    tcp_listener(executor& home, stream_socket socket, sluice::address address, listen_options options,
                 detail::provider_setup setup);
    ~tcp_listener() override;

    task<result<std::unique_ptr<detail::provider_connection>>> accept() override;
    void close() noexcept override;
    sluice::address address() const override { return address_; }
    std::uint64_t rejected() const noexcept override { return rejected_; }

    // ---- for receptions ----
    /// What to answer a greeting; none: the peer is dropped without a word.
    std::optional<greeting> judge(const greeting& theirs);
    /// The answer is out: the socket finds its place.
    void admit(stream_socket& socket, const greeting& theirs, const greeting& answer);
    void reject() noexcept { ++rejected_; }
    /// A reception is through; it is taken away later.
    void note_end() noexcept;

private:
    /// A connection of several lanes on its way, and what is agreed about it.
    struct forming {
        std::unique_ptr<tcp_forming> lanes;
        greeting agreed;
        std::uint64_t peer = 0;
        std::chrono::steady_clock::time_point until;
    };
    struct timer : detail::timer_node {
        tcp_listener* owner = nullptr;
    };

    background accept_loop();
    void sweep() noexcept;
    void arrived(tcp_forming& f);
    void finish(const greeting& agreed, std::uint64_t peer, std::vector<detail::unique_fd> sockets);
    void pause(std::chrono::nanoseconds at_most) noexcept;
    std::size_t pending() const noexcept { return receptions_.size() + forming_.size() + ready_.size(); }
    static void on_timer(detail::timer_node& node) noexcept;

    executor& home_;
    stream_socket socket_;
    sluice::address address_;
    listen_options options_;
    detail::provider_setup setup_;
    std::uint64_t rejected_ = 0;
    bool closed_ = false;
    bool told_shortage_ = false;
    bool pausing_ = false; // the loop waits for the timer, or for room
    parking_spot resume_;
    timer timer_;
    event arrived_;
    std::vector<std::unique_ptr<tcp_reception>> receptions_;
    std::vector<forming> forming_;
    std::deque<std::unique_ptr<detail::provider_connection>> ready_;
    background acceptor_;
};

/// Errors: those of runtime::listen.
task<result<std::unique_ptr<detail::provider_listener>>> tcp_listen(address on, listen_options options,
                                                                    detail::provider_setup setup);

} // namespace sluice::net
