#pragma once

#include <span>

namespace sluice::bench::raw {

/// Two ways to write an echo server without a library. Each serves connected TCP sockets until all peers have closed
/// theirs, and closes none. Messages are at most 4 KiB.

/// epoll, level-triggered: for each ready socket one recv(2) and one send(2).
void serve_with_epoll(std::span<const int> sockets);

/// A bare ring with the executor's set-up: one recv and one send in turn for each socket, each single-shot.
void serve_with_ring(std::span<const int> sockets);

} // namespace sluice::bench::raw
