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
    const char* listen_on;                ///< `%` stands for a number of its own in each test
    std::uint32_t lanes = 1;
    sluice::path carries = path::tcp;     ///< under which path the bytes are counted
    bool cancel_keeps_connection = true;  ///< false: a canceled one-sided operation is fatal to the connection
    bool peer_cpu_serves = true;          ///< one-sided operations wait while the peer's executor is busy
    bool moves_huge = false;              ///< runs the test of 2 GiB + 1 byte, which one row of a provider is enough for
    bool speaks_on_streams = true;        ///< its handshake is bytes of a stream socket, which a test can forge
};

// One row a type, so that each test case exists once per row under the row's name. RDMA adds its rows here.
struct tcp_ipv4 {
    static constexpr provider row{.name = "tcp over IPv4", .listen_on = "tcp://127.0.0.1:0", .moves_huge = true};
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

} // namespace sluice::conformance

#define CONFORMANCE_ROWS tcp_ipv4, tcp_ipv6, tcp_unix, tcp_lanes

/// A test case for every row: `CONFORMANCE_TEST("Read.moves_every_size", p) { run_pair(p, ...); }`
#define CONFORMANCE_TEST(NAME, ROW) CONFORMANCE_TEST_NAMED(CONFORMANCE_JOIN(conformance_test_, __LINE__), NAME, ROW)
#define CONFORMANCE_TEST_NAMED(FUNCTION, NAME, ROW)                                                                    \
    static void FUNCTION(const ::sluice::conformance::provider& ROW);                                                  \
    TEMPLATE_TEST_CASE(NAME, "", CONFORMANCE_ROWS) { FUNCTION(TestType::row); }                 \
    static void FUNCTION([[maybe_unused]] const ::sluice::conformance::provider& ROW)
#define CONFORMANCE_JOIN(A, B) CONFORMANCE_JOIN_EXPANDED(A, B)
#define CONFORMANCE_JOIN_EXPANDED(A, B) A##B
