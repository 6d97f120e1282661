#include "rdma/shares.hpp"

#include <sluice/blocking.hpp>

#include "rdma/device.hpp"
#include "rdma/rdma_connection.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::rdma {

using detail::transfer;
using detail::transfer_kind;

void share::revoke() noexcept {
    if (mr == nullptr) return;
    // Word of it first: a peer that hears it in time fails an operation and not the connection.
    if (home != nullptr) std::exchange(home, nullptr)->revoke(*this);
    on->deregister_shared(std::exchange(mr, nullptr));
}

shares::~shares() {
    close();
    while (!own_.empty()) {
        share& s = *own_.begin()->second;
        own_.erase(own_.begin());
        s.home = nullptr;
        s.revoke(); // the peer of this connection reaches it no more
    }
}

task<result<detail::provider_connection::shared>> shares::make(region_view memory, access granted) {
    auto made = std::make_shared<share>();
    made->on = &connection_.home_rail().on();
    const auto registers = [on = made->on, memory, granted] { return on->register_shared(memory, granted); };
    auto registered = co_await run_blocking(registers);
    if (!registered) co_return std::move(registered).error();
    made->mr = *registered;
    if (!connection_.is_open()) co_return connection_.cause();
    if (own_.size() == grants_max)
        co_return error(errc::out_of_resources, "share: this connection shares " + std::to_string(grants_max) +
                                                    " regions, that is the most; revoke some");
    largest_bytes_ = std::max<std::uint64_t>(largest_bytes_, memory.size_bytes());
    made->generation = ++generation_;
    made->home = this;
    own_.emplace(made->generation, made.get());
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    connection_.out().control({.type = frame_type::shared,
                               .access_bits = static_cast<std::uint8_t>(granted),
                               .immediate = made->generation,
                               .key = made->mr->rkey,
                               .size = memory.size_bytes(),
                               .address = address});
    auto known = co_await made->known.wait();
    if (!known) co_return std::move(known).error();
    if (!connection_.is_open()) co_return connection_.cause();
    remote_region description{.address = address,
                              .size_bytes = memory.size_bytes(),
                              .key = made->mr->rkey,
                              .owner = connection_.terms().self,
                              .generation = made->generation,
                              .granted = granted,
                              .provider = remote_region::provider_kind::rdma};
    co_return detail::provider_connection::shared{std::move(made), description};
}

void shares::revoke(share& s) noexcept {
    own_.erase(s.generation);
    s.known.set();
    if (!connection_.is_open()) return;
    connection_.out().control({.type = frame_type::revoked, .immediate = s.generation, .key = s.mr->rkey});
    connection_.lane_at(0).qp().post_now();
}

void shares::close() noexcept {
    for (auto& [generation, s] : own_) s->known.set();
}

// ---- the peer's ----

result<void> shares::on_shared(const frame& f) {
    if (theirs_.size() == grants_max)
        return error(errc::protocol_error, "the peer shares more than " + std::to_string(grants_max) + " regions");
    const auto granted = static_cast<access>(f.access_bits);
    if (granted == access::none || f.size == 0)
        return error(errc::protocol_error, "frame shared: access bits " + std::to_string(f.access_bits) + ", " +
                                               std::to_string(f.size) + " bytes at " + std::to_string(f.address));
    if (!theirs_.try_emplace(f.immediate, grant{f.key, f.address, f.size, granted}).second)
        return error(errc::protocol_error, "frame shared: generation " + std::to_string(f.immediate) + " is there already");
    return connection_.out().acknowledge(f);
}

result<void> shares::on_shared_ack(const frame& f) {
    // It may have been revoked meanwhile.
    if (const auto found = own_.find(f.immediate); found != own_.end()) found->second->known.set();
    return {};
}

result<void> shares::on_revoked(const frame& f) {
    theirs_.erase(f.immediate);
    last_checked_ = {};
    return {};
}

namespace {

access needed_for(transfer_kind kind) noexcept {
    switch (kind) {
    case transfer_kind::read: return access::remote_read;
    case transfer_kind::write:
    case transfer_kind::write_with_immediate: return access::remote_write;
    default: return access::remote_atomic;
    }
}

} // namespace

result<void> shares::check(const transfer& t) const {
    const remote_region& region = t.remote.region();
    const auto name = [&t] { return std::string(to_string(t.kind)); };
    if (region.provider != remote_region::provider_kind::rdma)
        return error(errc::access_denied, name() + ": the region was shared over tcp, this connection uses rdma");
    if (region.owner != connection_.terms().peer)
        return error(errc::access_denied, name() + ": the region was shared by " + std::to_string(region.owner) +
                                              ", the peer of this connection is " +
                                              std::to_string(connection_.terms().peer));
    if (last_checked_.of == nullptr || last_checked_.generation != region.generation) {
        const auto found = theirs_.find(region.generation);
        last_checked_ = {region.generation, found == theirs_.end() ? nullptr : &found->second};
    }
    if (last_checked_.of == nullptr || last_checked_.of->key != region.key)
        return error(errc::access_denied, name() + ": the peer shares nothing under this key, or no more");
    const grant& g = *last_checked_.of;
    if (!allows(g.granted, needed_for(t.kind)))
        return error(errc::access_denied, name() + ": the peer did not grant it for this region");
    const std::uint64_t at = t.remote.address();
    if (at < g.address || at - g.address > g.size || t.remote.size_bytes() > g.size - (at - g.address))
        return error(errc::out_of_range, name() + " of " + std::to_string(t.remote.size_bytes()) + " bytes at " +
                                             std::to_string(at) + ", the region is " + std::to_string(g.size) +
                                             " bytes at " + std::to_string(g.address));
    return {};
}

} // namespace sluice::rdma
