#include <sluice/scope.hpp>
#include <sluice/sleep.hpp>

#include "tests/net/raw_peer.hpp"
#include "tests/support/run.hpp"

#include <cstring>
#include <optional>

using namespace sluice;
using namespace sluice::net;
using namespace sluice::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t large = 16 << 20; // more than a socket buffers

frame asking(frame_type type, const remote_region& r, std::uint64_t id) {
    return {.type = type, .id = id, .key = r.key, .address = r.address, .size = r.size_bytes, .generation = r.generation};
}

} // namespace

TEST_CASE("Tcp_revoke.stops_a_read_that_is_being_served") {
    const auto home = make_executor();
    half_pair pair(*home);
    const auto body = [](connection& conn, raw_peer& peer) -> task<void> {
        memory ours(large, 1);
        auto shared = co_await conn.share(ours, access::remote_read);
        REQUIRE(shared);
        co_await peer.send(asking(frame_type::read, shared->description(), 3));
        auto slept = co_await sleep_for(30ms); // the socket fills; how far doesn't matter
        REQUIRE(slept);
        shared->revoke();
        ours.fill(99); // none of this may leave
        std::uint64_t total = 0;
        std::uint64_t zeros = 0;
        for (;;) {
            const frame f = co_await peer.receive();
            REQUIRE(f.id == 3);
            if (f.type == frame_type::end) {
                CHECK(f.status == frame_status::access_denied);
                break;
            }
            REQUIRE(f.type == frame_type::reply);
            CHECK(f.address == total);
            for (std::size_t i = 0; i < peer.payload.size(); ++i, ++total) {
                if (peer.payload[i] == memory::pattern(total, 1)) continue;
                REQUIRE(peer.payload[i] == std::byte{0});
                ++zeros;
            }
        }
        CHECK(zeros > 0);
        CHECK(total < large);
        // And it stays revoked.
        co_await peer.send(asking(frame_type::read, shared->description(), 3));
        const frame refused = co_await peer.receive(frame_type::end);
        CHECK(refused.status == frame_status::access_denied);
        CHECK(conn.is_open());
    };
    sync_wait(*home, body(pair.conn, pair.peer));
}

TEST_CASE("Tcp_revoke.stops_a_write_that_is_coming_in") {
    const auto home = make_executor();
    half_pair pair(*home);
    const auto body = [](connection& conn, raw_peer& peer) -> task<void> {
        constexpr std::size_t size = 400'000;
        memory ours(size, 1);
        memory from(size, 9);
        std::optional<shared_region> shared;
        {
            auto made = co_await conn.share(ours, access::remote_write);
            REQUIRE(made);
            shared.emplace(std::move(*made));
        }
        co_await peer.send(asking(frame_type::write, shared->description(), 0));
        co_await peer.send_header({.type = frame_type::data, .payload_bytes = size, .id = 0});
        const auto bytes = std::span<const std::byte>(from.data(), size);
        co_await peer.send_bytes(bytes.first(150'000));
        co_await until([&] { return ours.data()[149'999] == from.data()[149'999]; });
        shared.reset(); // its destructor revokes
        ours.fill(200);
        co_await peer.send_bytes(bytes.subspan(150'000));
        co_await peer.send({.type = frame_type::commit, .id = 0});
        const frame end = co_await peer.receive(frame_type::end);
        CHECK(end.status == frame_status::access_denied);
        CHECK(ours.holds(200));
        CHECK(conn.is_open());
    };
    sync_wait(*home, body(pair.conn, pair.peer));
}

TEST_CASE("Tcp_revoke.a_share_may_outlive_its_connection") {
    const auto home = make_executor();
    const auto body = [](executor& on) -> task<void> {
        memory ours(4096, 1);
        shared_region kept;
        {
            connected_pair pair(on);
            auto shared = co_await pair.a.share(ours, all_access);
            REQUIRE(shared);
            kept = std::move(*shared);
            CHECK(kept);
        }
        kept.revoke();
        kept.revoke();
        auto nothing = co_await connected_pair(on).a.share(region_view(), all_access);
        REQUIRE_FALSE(nothing);
        CHECK(nothing.error() == condition::invalid);
    };
    sync_wait(*home, body(*home));
}

TEST_CASE("Tcp_revoke.keys_are_not_guessable_and_never_come_again") {
    const auto home = make_executor();
    connected_pair pair(*home);
    const auto body = [](connection& a) -> task<void> {
        memory ours(4096, 1);
        std::vector<std::uint64_t> keys;
        for (int i = 0; i < 100; ++i) {
            auto shared = co_await a.share(ours, all_access);
            REQUIRE(shared);
            keys.push_back(shared->description().key);
        }
        std::sort(keys.begin(), keys.end());
        CHECK(std::adjacent_find(keys.begin(), keys.end()) == keys.end());
        std::uint64_t ones = 0;
        std::uint64_t zeros = 0;
        for (const auto key : keys) {
            ones |= key;
            zeros |= ~key;
        }
        CHECK(ones == ~std::uint64_t{0}); // every bit is 1 in some key, and 0 in some
        CHECK(zeros == ~std::uint64_t{0});
    };
    sync_wait(*home, body(pair.a));
}
