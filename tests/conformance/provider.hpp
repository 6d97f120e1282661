#pragma once

#include <sluice/connection.hpp>
#include <sluice/memory.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <cstdint>
#include <string>

namespace sluice::conformance {

/// What the suite must know of a provider on a kind of path; everything else must hold for all of them.
struct provider {
    const char* name;
    const char* listen_on;                ///< `%` stands for a number of its own in each test; `$NAME` is the value of
                                          ///< an environment variable, and the row is skipped without it
    std::uint32_t lanes = 1;
    sluice::path carries = path::tcp;     ///< under which path the bytes are counted
    bool cancel_keeps_connection = true;  ///< false: a canceled one-sided operation is fatal to the connection
    bool peer_cpu_serves = true;          ///< one-sided operations wait while the peer's executor is busy
    std::size_t huge_bytes = 0;           ///< of one huge transfer, which one row of a provider is enough for; 0: none
    bool speaks_on_streams = true;        ///< its handshake is bytes of a stream socket, which a test can forge
    bool counts_served = true;            ///< the serving end knows of each operation of the peer
    bool refusal_keeps_connection = true; ///< false: what only the serving end can refuse breaks the connection
    bool atomic_with_cpu = true;          ///< its atomics and std::atomic_ref exclude each other
    bool iwarp = false;                   ///< which of the fake devices it is
};

inline constexpr std::size_t over_2_gib = (std::size_t{2} << 30) + 1;

// One row a type, so that each test case exists once per row under the row's name.
struct tcp_ipv4 {
    static constexpr provider row{.name = "tcp over IPv4", .listen_on = "tcp://127.0.0.1:0", .huge_bytes = over_2_gib};
};
struct tcp_ipv6 {
    static constexpr provider row{.name = "tcp over IPv6", .listen_on = "tcp://[::1]:0"};
};
struct tcp_unix {
    static constexpr provider row{.name = "tcp over unix sockets", .listen_on = "tcp://@sluice-conformance-%"};
};
struct tcp_lanes {
    static constexpr provider row{.name = "tcp with four lanes", .listen_on = "tcp://127.0.0.1:0", .lanes = 4};
};

// Over RDMA there are as many rows as kinds of addresses; the devices behind these are the environment's affair.
constexpr provider over_rdma(const char* name, const char* listen_on, std::uint32_t lanes, std::size_t huge_bytes = 0) {
    return {.name = name, .listen_on = listen_on, .lanes = lanes, .carries = path::rdma, .cancel_keeps_connection = false,
            .peer_cpu_serves = false, .huge_bytes = huge_bytes, .speaks_on_streams = false, .counts_served = false,
            .refusal_keeps_connection = false, .atomic_with_cpu = false};
}
struct rdma_ipv4 {
    static constexpr provider row = over_rdma("rdma over IPv4", "$SLUICE_TEST_RDMA_IPV4", 1);
};
struct rdma_ipv6 {
    static constexpr provider row = over_rdma("rdma over IPv6", "$SLUICE_TEST_RDMA_IPV6", 1);
};
struct rdma_large_mtu {
    static constexpr provider row = over_rdma("rdma with a large MTU", "$SLUICE_TEST_RDMA_LARGE_MTU", 1, over_2_gib);
};
struct rdma_lanes {
    static constexpr provider row = over_rdma("rdma with four lanes", "$SLUICE_TEST_RDMA_IPV4", 4);
};

// On devices in memory, with sanitizers. ThreadSanitizer remembers too much of each byte for a huge one.
#ifdef __SANITIZE_THREAD__
inline constexpr std::size_t over_4_gib = 0;
#else
inline constexpr std::size_t over_4_gib = (std::size_t{4} << 30) + 1;
#endif
constexpr provider over_fake_rdma(const char* name, std::uint32_t lanes, std::size_t huge_bytes, bool iwarp) {
    provider row = over_rdma(name, "rdma://10.0.0.1:0", lanes, huge_bytes);
    row.iwarp = iwarp;
    return row;
}
struct fake_roce {
    static constexpr provider row = over_fake_rdma("rdma on a fake RoCE device", 1, over_4_gib, false);
};
struct fake_roce_lanes {
    static constexpr provider row = over_fake_rdma("rdma on a fake RoCE device with four lanes", 4, 0, false);
};
struct fake_iwarp {
    static constexpr provider row = over_fake_rdma("rdma on a fake iWARP device", 1, 0, true);
};
struct fake_iwarp_lanes {
    static constexpr provider row = over_fake_rdma("rdma on a fake iWARP device with four lanes", 4, 0, true);
};

/// Skips the test case when the row's address is in no environment variable.
void require_row(const provider& p);

} // namespace sluice::conformance

#if defined(CONFORMANCE_FAKE_RDMA)
#include "tests/conformance/fake_rdma.hpp"
#define CONFORMANCE_ROWS fake_roce, fake_roce_lanes, fake_iwarp, fake_iwarp_lanes
#define CONFORMANCE_WORLD(ROW) const ::sluice::conformance::fake_rdma world(ROW)
#elif defined(CONFORMANCE_RDMA)
#define CONFORMANCE_ROWS rdma_ipv4, rdma_ipv6, rdma_large_mtu, rdma_lanes
#else
#define CONFORMANCE_ROWS tcp_ipv4, tcp_ipv6, tcp_unix, tcp_lanes
#endif
#ifndef CONFORMANCE_WORLD
#define CONFORMANCE_WORLD(ROW) ::sluice::conformance::require_row(ROW)
#endif

/// A test case for every row: `CONFORMANCE_TEST("Read.moves_every_size", p) { run_pair(p, ...); }`
#define CONFORMANCE_TEST(NAME, ROW) CONFORMANCE_TEST_NAMED(CONFORMANCE_JOIN(conformance_test_, __LINE__), NAME, ROW)
#define CONFORMANCE_TEST_NAMED(FUNCTION, NAME, ROW)                                                                    \
    static void FUNCTION(const ::sluice::conformance::provider& ROW);                                                  \
    TEMPLATE_TEST_CASE(NAME, "", CONFORMANCE_ROWS) {                                                                   \
        CONFORMANCE_WORLD(TestType::row);                                                                              \
        FUNCTION(TestType::row);                                                                                       \
    }                                                                                                                  \
    static void FUNCTION([[maybe_unused]] const ::sluice::conformance::provider& ROW)
#define CONFORMANCE_JOIN(A, B) CONFORMANCE_JOIN_EXPANDED(A, B)
#define CONFORMANCE_JOIN_EXPANDED(A, B) A##B
