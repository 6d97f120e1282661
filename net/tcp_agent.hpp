#pragma once

#include <sluice/memory.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>

#include "net/provider.hpp"
#include "net/tcp_serving.hpp"
#include "net/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace sluice::net {

class tcp_agent;
class tcp_connection;
class tcp_lane;

/// Memory that the peer of one connection may reach.
struct tcp_share final : shared_region::slot {
    ~tcp_share() override { tcp_share::revoke(); }
    void revoke() noexcept override;

    tcp_agent* agent = nullptr; ///< null: revoked, or the connection is gone
    std::byte* base = nullptr;
    std::size_t size_bytes = 0;
    access granted = access::none;
    std::uint64_t key = 0;
    std::uint32_t generation = 0;
};

/// Serves the peer's one-sided operations: finds the memory that a key stands for, checks every single access, and
/// answers. Refusing fails the operation, not the connection.
class tcp_agent {
public:
    explicit tcp_agent(tcp_connection& connection) noexcept : connection_(connection) {}
    ~tcp_agent();
    tcp_agent(const tcp_agent&) = delete;
    tcp_agent& operator=(const tcp_agent&) = delete;

    detail::provider_connection::shared share(region_view memory, access granted);
    void revoke(tcp_share& share) noexcept;

    // from the peer; errors are broken protocol
    result<void> on_read(tcp_lane& lane, const frame& f);
    result<flow*> on_write(tcp_lane& lane, const frame& f);
    result<void> on_atomic(tcp_lane& lane, const frame& f);
    result<void> on_offer(tcp_lane& lane, const frame& f);
    result<void> on_commit(tcp_lane& lane, const frame& f);
    result<void> on_cancel(tcp_lane& lane, const frame& f);
    result<flow*> open_data(tcp_lane& lane, const frame& f);
    /// All of a write has come: answers it.
    void finish_write(tcp_serving& s) noexcept;

    /// Forgets all that is under way: nothing is sent or received any more.
    void abandon_all() noexcept;

private:
    struct grant {
        tcp_share* share = nullptr;
        frame_status status = frame_status::ok;
    };
    grant check(const frame& f, std::uint64_t bytes, access wanted) noexcept;
    result<tcp_serving*> begin(tcp_lane& lane, const frame& f, tcp_serving::kind what);
    void admit(tcp_serving& s, const frame& f, grant g, std::uint64_t bytes) noexcept;

    tcp_connection& connection_;
    std::unordered_map<std::uint64_t, tcp_share*> shares_;
    tcp_share* last_ = nullptr; // found last
    std::uint32_t generation_ = 0;
};

} // namespace sluice::net
