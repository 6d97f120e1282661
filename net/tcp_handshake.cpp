#include "net/tcp_handshake.hpp"

#include <sluice/timeout.hpp>

#include "net/endpoint.hpp"
#include "net/resolve.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace sluice::net {

greeting hello_of(const connection_options& options, std::uint64_t owner) noexcept {
    return {.kind = greeting_kind::hello,
            .lanes = static_cast<std::uint16_t>(options.lanes),
            .operations_in_flight = options.operations_in_flight,
            .receive_credits = options.receive_credits,
            .message_bytes_max = options.message_bytes_max,
            .owner = owner};
}

bool common_version(const greeting& g) noexcept {
    return g.version_min <= protocol_version && g.version_max >= protocol_version;
}

result<greeting> meet(const greeting& hello, const connection_options& options) {
    const auto within = [](std::uint32_t value, std::uint32_t most) { return value >= 1 && value <= most; };
    if (!within(hello.lanes, lanes_max) || !within(hello.operations_in_flight, 65536) ||
        !within(hello.receive_credits, 4096) || !within(hello.message_bytes_max, 1U << 30))
        return error(errc::protocol_error,
                     "handshake: lanes " + std::to_string(hello.lanes) + " (1..16), operations " +
                         std::to_string(hello.operations_in_flight) + " (1..65536), credits " +
                         std::to_string(hello.receive_credits) + " (1..4096), message bytes " +
                         std::to_string(hello.message_bytes_max) + " (1..1 GiB)");
    greeting agreed;
    agreed.kind = greeting_kind::welcome;
    agreed.lanes = std::min(hello.lanes, static_cast<std::uint16_t>(options.lanes));
    agreed.operations_in_flight = std::min(hello.operations_in_flight, options.operations_in_flight);
    agreed.receive_credits = std::min(hello.receive_credits, options.receive_credits);
    agreed.message_bytes_max = std::min(hello.message_bytes_max, options.message_bytes_max);
    return agreed;
}

result<void> prepare(stream_socket& socket, const connection_options& options) {
    if (auto ok = socket.set_no_delay(true); !ok) return ok;
    return socket.set_peer_timeout(options.peer_timeout);
}

detail::unique_fd release(stream_socket& socket) noexcept {
    return detail::unique_fd(std::exchange(socket.state().fd, -1));
}

tcp_terms terms_of(const greeting& agreed, std::uint64_t peer, const detail::provider_setup& setup, int fd) {
    const auto text = [](const result<endpoint>& e) {
        return e ? e->to_address(scheme::tcp).to_string() : std::string("tcp://unknown");
    };
    return {.operations_in_flight = agreed.operations_in_flight,
            .receive_credits = agreed.receive_credits,
            .message_bytes_max = agreed.message_bytes_max,
            .self = setup.owner,
            .peer = peer,
            .choice = setup.choice,
            .local_address = text(local_endpoint(fd)),
            .peer_address = text(peer_endpoint(fd))};
}

namespace {

task<result<greeting>> receive_greeting(stream_socket& socket) {
    std::array<std::byte, greeting_bytes> bytes{};
    std::size_t have = 0;
    while (have < bytes.size()) {
        auto got = co_await socket.read_some(std::span(bytes).subspan(have));
        if (!got) co_return std::move(got).error();
        if (*got == 0)
            co_return error(have == 0 ? errc::closed : errc::protocol_error, "handshake: the peer closed the connection after " +
                                                      std::to_string(have) + " of " + std::to_string(bytes.size()) +
                                                      " bytes of its greeting");
        have += *got;
        if (auto ok = check_greeting_start({bytes.data(), have}); !ok) co_return std::move(ok).error();
    }
    co_return decode_greeting(bytes);
}

const char* to_string(refusal reason) noexcept {
    switch (reason) {
    case refusal::none: return "no reason given";
    case refusal::version: return "version";
    case refusal::token: return "the connection that this lane belongs to is unknown there";
    case refusal::lane: return "this lane is taken or was not agreed on";
    case refusal::busy: return "it is shutting down";
    }
    return "unknown";
}

/// Sends a greeting and takes the welcome that answers it.
task<result<greeting>> greet(stream_socket& socket, greeting ours) {
    const auto bytes = encode(ours);
    auto sent = co_await socket.write_all(bytes);
    if (!sent) co_return std::move(sent).error();
    auto answer = co_await receive_greeting(socket);
    if (!answer) co_return std::move(answer).error();
    if (!common_version(*answer))
        co_return error(errc::version_mismatch, "handshake: the peer speaks versions " +
                                                    std::to_string(answer->version_min) + ".." +
                                                    std::to_string(answer->version_max) + ", this end " +
                                                    std::to_string(protocol_version));
    if (answer->kind == greeting_kind::refused)
        co_return error(errc::protocol_error, std::string("handshake: the peer refused: ") + to_string(answer->reason));
    if (answer->kind != greeting_kind::welcome)
        co_return error(errc::protocol_error, "handshake: the answer is a greeting of kind " +
                                                  std::to_string(static_cast<unsigned>(answer->kind)) + ", not a welcome");
    co_return *answer;
}

/// The error with the address before it.
error about(const address& to, const error& e) {
    return {e.code(), "connect to " + to.to_string() + (e.detail().empty() ? "" : ": ") + std::string(e.detail())};
}

/// Nothing that the peer grants may exceed what was asked for.
result<void> check_welcome(const greeting& hello, const greeting& welcome) {
    const auto within = [](std::uint32_t value, std::uint32_t most) { return value >= 1 && value <= most; };
    if (within(welcome.lanes, hello.lanes) && within(welcome.operations_in_flight, hello.operations_in_flight) &&
        within(welcome.receive_credits, hello.receive_credits) &&
        within(welcome.message_bytes_max, hello.message_bytes_max))
        return {};
    return error(errc::protocol_error, "handshake: the peer grants more than was asked for, or nothing");
}

task<result<std::unique_ptr<detail::provider_connection>>> establish(address to, connection_options options,
                                                                     detail::provider_setup setup) {
    auto endpoints = co_await resolve(to);
    if (!endpoints) co_return std::move(endpoints).error();
    auto first = co_await connect_first(*endpoints);
    if (!first) co_return std::move(first).error();
    if (auto ok = prepare(*first, options); !ok) co_return std::move(ok).error();
    const greeting hello = hello_of(options, setup.owner);
    auto welcome = co_await greet(*first, hello);
    if (!welcome) co_return about(to, welcome.error());
    if (auto ok = check_welcome(hello, *welcome); !ok) co_return about(to, ok.error());
    tcp_terms terms = terms_of(*welcome, welcome->owner, setup, first->fd());
    auto peer = peer_endpoint(first->fd());
    if (!peer) co_return std::move(peer).error();
    std::vector<detail::unique_fd> sockets;
    sockets.push_back(release(*first));
    greeting attach = *welcome;
    attach.kind = greeting_kind::attach;
    for (std::uint32_t i = 1; i < welcome->lanes; ++i) {
        auto lane = stream_socket::create(peer->family());
        if (!lane) co_return std::move(lane).error();
        auto reached = co_await lane->connect(*peer);
        if (!reached) co_return std::move(reached).error();
        if (auto ok = prepare(*lane, options); !ok) co_return std::move(ok).error();
        attach.lane = static_cast<std::uint8_t>(i);
        auto taken = co_await greet(*lane, attach);
        if (!taken) co_return about(to, taken.error());
        sockets.push_back(release(*lane));
    }
    executor& home = co_await this_executor();
    co_return std::make_unique<tcp_connection>(home, options, std::move(terms), std::move(sockets));
}

} // namespace

task<result<std::unique_ptr<detail::provider_connection>>> tcp_connect(address to, connection_options options,
                                                                       detail::provider_setup setup) {
    const std::string name = to.to_string();
    const auto limit = options.connect_timeout;
    auto made = co_await timeout(limit, establish(std::move(to), std::move(options), std::move(setup)));
    if (made || made.error() != errc::deadline_exceeded) co_return made;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
    co_return error(errc::deadline_exceeded, "connect to " + name + ": not done within " + std::to_string(waited) +
                                                 " ms (connection_options.connect_timeout)");
}

} // namespace sluice::net
