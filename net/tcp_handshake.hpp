#pragma once

#include <sluice/address.hpp>
#include <sluice/connection.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/provider.hpp"
#include "net/socket.hpp"
#include "net/tcp_connection.hpp"
#include "net/wire.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace sluice::net {

/// What this end can do, as it is said in a hello.
greeting hello_of(const connection_options& options, std::uint64_t owner) noexcept;
/// The smaller of what the peer asks for and what `options` allow. Errors: errc::protocol_error for numbers that no
/// end may ask for.
result<greeting> meet(const greeting& hello, const connection_options& options);
/// Whether there is a version that both speak.
bool common_version(const greeting& g) noexcept;

/// What every socket of a connection gets: no delay, keep-alive.
result<void> prepare(stream_socket& socket, const connection_options& options);

/// What a connection is to know, once both sides have greeted: `agreed` is the welcome.
tcp_terms terms_of(const greeting& agreed, std::uint64_t peer, const detail::provider_setup& setup, int fd);

/// Takes the descriptor out of a socket.
detail::unique_fd release(stream_socket& socket) noexcept;

/// The connecting side, from the name to the last lane. Errors: those of runtime::connect.
task<result<std::unique_ptr<detail::provider_connection>>> tcp_connect(address to, connection_options options,
                                                                       detail::provider_setup setup);

} // namespace sluice::net
