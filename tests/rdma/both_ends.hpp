#pragma once

#include "rdma/frame.hpp"
#include "tests/rdma/rail_fixture.hpp"
#include "tests/rdma/set_up_fixture.hpp"

#include <sluice/memory.hpp>

#include <catch2/catch_test_macros.hpp>
#include <optional>

/// Connections that are established in a fake world, and what tests do with them side by side.
namespace sluice::testing {

struct both_ends {
    connection client, server;
    ibv_qp* of_client = nullptr; ///< its first lane
    ibv_qp* of_server = nullptr;
};

/// Lets everything that is on its way arrive.
inline task<void> settle() {
    for (int i = 0; i < 8; ++i) co_await round_trips();
}

/// In a world that executes what is posted.
inline task<both_ends> meet(two_ends& in, connection_options options = {}) {
    auto pair = co_await when_all(in.connect(options), in.listener->accept());
    auto& [client, server] = pair;
    REQUIRE(client);
    REQUIRE(server);
    both_ends met{connection(std::move(*client)), connection(std::move(*server))};
    const auto all = in.world.queue_pairs();
    met.of_client = all.at(all.size() - 2 * options.lanes);
    met.of_server = all.at(all.size() - 2 * options.lanes + 1);
    co_await settle();
    co_return met;
}

/// Memory that is registered.
struct some_memory {
    explicit some_memory(std::size_t bytes) : data(bytes) {
        auto made = memory_region::create(data);
        REQUIRE(made);
        region.emplace(std::move(*made));
    }
    region_view view() const { return region->view(); }
    std::vector<std::byte> data;
    std::optional<memory_region> region;
};

/// How a task that was spawned ended, once it has.
using outcome = std::optional<result<void>>;

inline task<void> closes(connection& c, outcome& how) {
    auto r = co_await c.close();
    how = std::move(r);
}
inline task<void> waits_for_the_end(connection& c, outcome& how) {
    auto r = co_await c.closed();
    how = std::move(r);
}
inline task<void> sends(connection& c, const_region_view from, outcome& how) {
    auto r = co_await c.send(from);
    how = std::move(r);
}
inline task<void> receives(connection& c, region_view into, outcome& how) {
    auto r = co_await c.receive(into);
    how = r ? result<void>() : result<void>(r.error());
}
inline task<void> shares(connection& c, region_view memory, access granted, outcome& how,
                         std::optional<shared_region>* kept = nullptr) {
    auto r = co_await c.share(memory, granted);
    how = r ? result<void>() : result<void>(r.error());
    if (r && kept != nullptr) *kept = std::move(*r);
}
inline task<void> writes_with_immediate(connection& c, remote_region to, const_region_view from, outcome& how) {
    auto r = co_await c.write_with_immediate(to, from, 7);
    how = std::move(r);
}

inline void check_ended(const outcome& how) {
    REQUIRE(how.has_value());
    check_ok(*how);
}
inline void check_ended(const outcome& how, condition with) {
    REQUIRE(how.has_value());
    check_error(*how, with);
}

/// A frame as it travels.
inline std::vector<std::byte> bytes_of(rdma::frame f, std::size_t payload = 0) {
    f.payload_bytes = static_cast<std::uint16_t>(payload);
    const auto header = f.encode();
    std::vector<std::byte> all(header.begin(), header.end());
    all.resize(header.size() + payload);
    return all;
}

} // namespace sluice::testing
