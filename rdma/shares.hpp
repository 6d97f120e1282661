#pragma once

#include <sluice/event.hpp>
#include <sluice/memory.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "net/provider.hpp"
#include "rdma/frame.hpp"
#include "rdma/verbs.hpp"

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace sluice::rdma {

class device;
class rdma_connection;
class shares;

/// Memory that the peer of one connection may reach: a registration of its own, of just that range and access.
struct share final : shared_region::slot {
    ~share() override { share::revoke(); }
    void revoke() noexcept override;

    device* on = nullptr;
    ibv_mr* mr = nullptr;   ///< null: revoked
    shares* home = nullptr; ///< null: the connection is gone
    std::uint32_t generation = 0;
    event known; ///< the peer has said so, or never will
};

/// What each end of a connection lets the other reach. The device checks every access; the tables here are for honest
/// mistakes: a wrong key, range or access fails its operation before it costs the connection.
class shares {
public:
    explicit shares(rdma_connection& connection) noexcept : connection_(connection) {}
    ~shares();
    shares(const shares&) = delete;
    shares& operator=(const shares&) = delete;

    /// Registers, tells the peer, and waits until it knows.
    task<result<detail::provider_connection::shared>> make(region_view memory, access granted);
    void revoke(share& s) noexcept;
    /// No answer comes any more.
    void close() noexcept;

    /// Of the largest region that was ever shared here.
    std::uint64_t largest_bytes() const noexcept { return largest_bytes_; }
    /// Whether the peer lets an operation do this. Errors: access_denied, out_of_range.
    result<void> check(const detail::transfer& t) const;

    // from the peer; errors are broken protocol
    result<void> on_shared(const frame& f);
    result<void> on_shared_ack(const frame& f);
    result<void> on_revoked(const frame& f);

private:
    struct grant {
        std::uint32_t key = 0;
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        access granted = access::none;
    };
    static constexpr std::size_t grants_max = 65536; // what a peer may make this end remember

    rdma_connection& connection_;
    std::unordered_map<std::uint32_t, share*> own_; // by generation
    std::unordered_map<std::uint32_t, grant> theirs_;
    mutable struct {
        std::uint32_t generation = 0;
        const grant* of = nullptr;
    } last_checked_; // most operations are on the region of the one before
    std::uint32_t generation_ = 0;
    std::uint64_t largest_bytes_ = 0;
};

} // namespace sluice::rdma
