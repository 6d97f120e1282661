#pragma once

#include <sluice/executor.hpp>
#include <sluice/stop.hpp>

#include "net/wire.hpp"
#include "runtime/unique_fd.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::net {

/// A connection of several lanes whose sockets arrive one by one. It belongs to the executor of the listener that met
/// the first; a later one may meet another listener of the process, where several share a port, and then crosses threads.
class tcp_forming : detail::posted_node {
public:
    /// The first lane has its place reserved. `on_arrival` is called on `home` after sockets have come.
    tcp_forming(executor& home, std::uint32_t lanes, std::function<void(tcp_forming&)> on_arrival);
    ~tcp_forming();
    tcp_forming(const tcp_forming&) = delete;
    tcp_forming& operator=(const tcp_forming&) = delete;

    const connection_token& token() const noexcept { return token_; }
    /// All sockets are here. Its executor only.
    bool complete() noexcept;
    std::vector<detail::unique_fd> take_sockets() noexcept;

    /// Whether this lane may come, and holds its place. Any thread.
    static refusal reserve(const connection_token& token, std::uint32_t lane);
    /// Brings its socket; dropped if the connection has gone meanwhile. Any thread.
    static void hand_over(const connection_token& token, std::uint32_t lane, detail::unique_fd socket);

private:
    executor& home_;
    connection_token token_;
    std::function<void(tcp_forming&)> on_arrival_;
    // guarded by the lobby's mutex
    std::uint32_t lanes_;
    std::uint32_t arrived_ = 0;
    bool posted_ = false;
    std::array<bool, lanes_max> reserved_{};
    std::array<detail::unique_fd, lanes_max> sockets_;
};

} // namespace sluice::net
