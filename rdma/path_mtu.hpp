#pragma once

#include "rdma/verbs.hpp"

#include <cstdint>

/// The connection manager takes the path's MTU from the route of the connecting end and gives it to both. A port that
/// carries less than that loses all packets which are larger, so the ends tell each other what their ports carry
/// [rdma/handshake.hpp] and keep to the smaller.
///
/// MTUs as verbs number them, 1 (256 bytes) to 5 (4096 bytes) [ibv_query_port(3)]; 0 is unknown, or iWARP, whose TCP
/// has its own. Thread rule: as the id.
namespace sluice::rdma {

/// What the port of this id carries now.
std::uint8_t port_mtu(const rdma_cm_id& id) noexcept;
/// Of both ends.
std::uint8_t smaller_mtu(std::uint8_t a, std::uint8_t b) noexcept;

/// rdma_accept, with at most this path MTU for the id's queue pair. 0, or -1 and errno.
int accept_with_mtu(rdma_cm_id& id, rdma_conn_param& with, std::uint8_t path_mtu) noexcept;
/// At the connecting end, which learns of the peer's MTU when all is established: makes the queue pair ready anew if its
/// path MTU is larger. Before the first frame, so that nothing has been sent either way. 0, or -1 and errno.
int lower_mtu(rdma_cm_id& id, std::uint8_t path_mtu) noexcept;

} // namespace sluice::rdma
