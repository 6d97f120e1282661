#pragma once

#include <sluice/connection.hpp>
#include <sluice/region.hpp>
#include <sluice/sync_wait.hpp>

#include "net/tcp_connection.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace sluice::testing {

struct pair_options {
    std::uint32_t lanes = 1;
    std::uint32_t operations_in_flight = 64;
    std::uint32_t receive_credits = 16;
    std::uint32_t message_bytes_max = 16 << 20;
    connection_options options{};
};

inline net::tcp_terms terms_of(const pair_options& o) {
    return {.operations_in_flight = o.operations_in_flight,
            .receive_credits = o.receive_credits,
            .message_bytes_max = o.message_bytes_max,
            .self = 4711,
            .peer = 4711,
            .choice = "tcp: a test",
            .local_address = "tcp://@here",
            .peer_address = "tcp://@there"};
}

inline std::pair<detail::unique_fd, detail::unique_fd> socket_pair() {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    return {detail::unique_fd(fds[0]), detail::unique_fd(fds[1])};
}

inline connection make_connection(executor& home, const pair_options& o, std::vector<detail::unique_fd> sockets) {
    return connection(std::make_unique<net::tcp_connection>(home, o.options, terms_of(o), std::move(sockets)));
}

/// Both ends on one executor, over unix sockets.
struct connected_pair {
    connection a;
    connection b;

    explicit connected_pair(executor& home, const pair_options& o = {}) {
        std::vector<detail::unique_fd> left;
        std::vector<detail::unique_fd> right;
        for (std::uint32_t i = 0; i < o.lanes; ++i) {
            auto [l, r] = socket_pair();
            left.push_back(std::move(l));
            right.push_back(std::move(r));
        }
        a = make_connection(home, o, std::move(left));
        b = make_connection(home, o, std::move(right));
    }
};

/// Memory of its own, registered, with a pattern that depends on the position.
class memory {
public:
    explicit memory(std::size_t size_bytes, std::uint8_t seed = 1) : bytes_(std::max<std::size_t>(size_bytes, 1)) {
        fill(seed);
        auto made = memory_region::create(bytes_);
        REQUIRE(made);
        region_ = std::move(*made);
        view_ = region_.view().first(size_bytes);
    }
    void fill(std::uint8_t seed) {
        for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = pattern(i, seed);
    }
    static std::byte pattern(std::size_t i, std::uint8_t seed) {
        return static_cast<std::byte>(i * 31 + i / 251 + i / 65521 + seed);
    }
    bool holds(std::uint8_t seed) const {
        for (std::size_t i = 0; i < view_.size_bytes(); ++i)
            if (bytes_[i] != pattern(i, seed)) return false;
        return true;
    }
    region_view view() const { return view_; }
    operator region_view() const { return view_; }
    operator const_region_view() const { return view_; }
    std::byte* data() { return bytes_.data(); }

private:
    std::vector<std::byte> bytes_;
    memory_region region_;
    region_view view_;
};

inline constexpr access all_access = access::remote_read | access::remote_write | access::remote_atomic;

} // namespace sluice::testing
