#include <sluice/sleep.hpp>
#include <sluice/stream.hpp>

#include "net/endpoint.hpp"
#include "net/resolve.hpp"
#include "net/socket.hpp"
#include "runtime/log.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace sluice {

namespace {

void expect_unused(const detail::stream_state& state) noexcept {
    SLUICE_EXPECTS(!state.receiving && !state.sending, "stream: moved, closed or destroyed while an operation holds it");
}

detail::stream_state take(detail::stream_state& from) noexcept {
    expect_unused(from);
    return std::exchange(from, {});
}

void close_descriptor(detail::stream_state& state) noexcept {
    expect_unused(state);
    // EINTR or an error would still have freed the number [close(2)]; a second try could hit another's.
    if (state.fd >= 0) static_cast<void>(::close(std::exchange(state.fd, -1)));
}

/// Of accept: what passes when others give back what they hold.
bool is_shortage(int errno_value) noexcept {
    return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOBUFS || errno_value == ENOMEM ||
           errno_value == EPERM;
}

} // namespace

stream::stream(stream&& other) noexcept : state_(take(other.state_)) {}

stream& stream::operator=(stream&& other) noexcept {
    if (this == &other) return *this;
    close();
    state_ = take(other.state_);
    return *this;
}

void stream::close() noexcept { close_descriptor(state_); }

result<void> stream::shutdown_send() noexcept {
    if (::shutdown(state_.fd, SHUT_WR) == 0 || errno == ENOTCONN) return {};
    return error::from_errno(errno, "shutdown");
}

result<address> stream::local_address() const {
    const auto e = net::local_endpoint(state_.fd);
    if (!e) return e.error();
    return e->to_address(scheme::tcp);
}

result<address> stream::peer_address() const {
    const auto e = net::peer_endpoint(state_.fd);
    if (!e) return e.error();
    return e->to_address(scheme::tcp);
}

task<result<stream>> stream::connect(sluice::address to, stream_options options) {
    auto endpoints = co_await net::resolve(std::move(to));
    if (!endpoints) co_return std::move(endpoints).error();
    auto made = co_await net::connect_first(*endpoints);
    if (!made) co_return std::move(made).error();
    if (auto ok = made->set_no_delay(options.no_delay); !ok) co_return std::move(ok).error();
    co_return stream(std::move(*made));
}

stream_listener::stream_listener(stream_listener&& other) noexcept
    : state_(take(other.state_)), address_(std::exchange(other.address_, {})), options_(other.options_) {}

stream_listener& stream_listener::operator=(stream_listener&& other) noexcept {
    if (this == &other) return *this;
    close();
    state_ = take(other.state_);
    address_ = std::exchange(other.address_, {});
    options_ = other.options_;
    return *this;
}

void stream_listener::close() noexcept {
    if (state_.fd < 0) return;
    close_descriptor(state_);
    if (address_.unix_path.starts_with('/')) static_cast<void>(unlink(address_.unix_path.c_str()));
}

task<result<stream_listener>> stream_listener::listen(sluice::address on, stream_listen_options options) {
    const scheme asked = on.scheme;
    auto endpoints = co_await net::resolve(std::move(on));
    if (!endpoints) co_return std::move(endpoints).error();
    error last(errc::invalid_address);
    for (const net::endpoint& e : *endpoints) {
        auto made = net::listening_socket(e, options);
        if (!made) {
            last = std::move(made).error();
            continue;
        }
        auto bound = net::local_endpoint(made->fd());
        if (!bound) co_return std::move(bound).error();
        stream_listener listener;
        listener.address_ = bound->to_address(asked);
        listener.options_ = options;
        listener.state_ = std::exchange(made->state(), {});
        co_return std::move(listener);
    }
    co_return last;
}

task<result<stream>> stream_listener::accept() {
    using namespace std::chrono_literals;
    SLUICE_EXPECTS(state_.fd >= 0, "listener: accept after close");
    constexpr auto pause_max = 250ms;
    for (auto pause = 5ms;; pause = std::min<std::chrono::milliseconds>(pause * 2, pause_max)) {
        const int rc = co_await net::accept_request(state_);
        if (rc >= 0) {
            auto accepted = net::stream_socket::adopt(rc);
            // A peer that has reset meanwhile makes options fail; its end shows at the first read.
            static_cast<void>(accepted.set_no_delay(options_.accepted.no_delay));
            co_return stream(std::move(accepted));
        }
        if (!is_shortage(-rc)) co_return error::from_errno(-rc, "accept on " + address_.to_string());
        SLUICE_LOG_ONCE(warning, "accept on ", address_.to_string(), ": ", error::from_errno(-rc).message(),
                        "; who connects waits until others have gone; raise the limit of open files (ulimit -n); said once");
        // The backlog stays readable, so asking again at once would spin; nobody tells when a descriptor is free.
        if (auto slept = co_await sleep_for(pause); !slept) co_return std::move(slept).error();
    }
}

} // namespace sluice
