#include "net/tcp_agent.hpp"

#include "net/random.hpp"
#include "net/tcp_connection.hpp"

#include <atomic>
#include <bit>
#include <string>

namespace sluice::net {

static_assert(std::endian::native == std::endian::little, "tcp: words of atomics are little-endian in memory too");

namespace {

error broken(const frame& f, const std::string& why) {
    return {make_error_code(errc::protocol_error), std::string("frame ") + to_string(f.type) + ": " + why};
}

} // namespace

void tcp_share::revoke() noexcept {
    if (agent != nullptr) agent->revoke(*this);
}

tcp_agent::~tcp_agent() {
    for (auto& [key, share] : shares_) share->agent = nullptr;
}

detail::provider_connection::shared tcp_agent::share(region_view memory, access granted) {
    auto made = std::make_shared<tcp_share>();
    made->base = memory.data();
    made->size_bytes = memory.size_bytes();
    made->granted = granted;
    made->generation = ++generation_;
    do made->key = random_number();
    while (!shares_.emplace(made->key, made.get()).second);
    made->agent = this;
    const remote_region description{.address = reinterpret_cast<std::uint64_t>(made->base),
                                    .size_bytes = made->size_bytes,
                                    .key = made->key,
                                    .owner = connection_.terms().self,
                                    .generation = made->generation,
                                    .granted = granted,
                                    .provider = remote_region::provider_kind::tcp};
    return {.slot = std::move(made), .description = description};
}

void tcp_agent::revoke(tcp_share& share) noexcept {
    SLUICE_EXPECTS(executor::current() == &connection_.home(), "shared_region: revoked on another thread");
    shares_.erase(share.key);
    if (last_ == &share) last_ = nullptr;
    share.agent = nullptr;
    for (std::uint32_t i = 0; i < connection_.lane_count(); ++i) {
        tcp_lane& lane = connection_.lane(i);
        lane.servings().for_each([&](tcp_serving& s) {
            if (s.share != &share) return;
            lane.withdraw_target(s);
            s.share = nullptr;
            if (s.status == frame_status::ok) s.status = frame_status::access_denied;
        });
        lane.withdraw_source(&share);
    }
}

tcp_agent::grant tcp_agent::check(const frame& f, std::uint64_t bytes, access wanted) noexcept {
    if (last_ == nullptr || last_->key != f.key) {
        const auto found = shares_.find(f.key);
        if (found == shares_.end()) return {nullptr, frame_status::access_denied};
        last_ = found->second;
    }
    tcp_share& share = *last_;
    if (share.generation != f.generation || !allows(share.granted, wanted))
        return {nullptr, frame_status::access_denied};
    const auto base = reinterpret_cast<std::uint64_t>(share.base);
    if (f.address < base || f.address - base > share.size_bytes || bytes > share.size_bytes - (f.address - base))
        return {nullptr, frame_status::out_of_range};
    return {&share, frame_status::ok};
}

result<tcp_serving*> tcp_agent::begin(tcp_lane& lane, const frame& f, tcp_serving::kind what) {
    const std::uint32_t slot = slot_of(f.id);
    if (slot >= lane.servings().capacity())
        return broken(f, "operation number " + std::to_string(slot) + ", allowed is 0.." +
                             std::to_string(lane.servings().capacity() - 1));
    tcp_serving& s = lane.servings().at(slot);
    if (s.active()) return broken(f, "operation number " + std::to_string(slot) + " is under way already");
    s.begin(connection_, lane, what, f);
    return &s;
}

/// Notes what the check found: the memory, or that nothing is to be touched.
void tcp_agent::admit(tcp_serving& s, const frame& f, grant g, std::uint64_t bytes) noexcept {
    s.share = g.share;
    s.status = g.status;
    s.size = bytes;
    if (g.share != nullptr) s.memory = reinterpret_cast<std::byte*>(f.address);
    else ++connection_.counters().refused_operations;
}

result<void> tcp_agent::on_read(tcp_lane& lane, const frame& f) {
    auto s = begin(lane, f, tcp_serving::kind::read);
    if (!s) return s.error();
    admit(**s, f, check(f, f.size, access::remote_read), f.size);
    if ((*s)->status == frame_status::ok && f.size > inline_write_bytes_max) lane.send_bulk(**s);
    else lane.send(**s);
    return {};
}

result<flow*> tcp_agent::on_write(tcp_lane& lane, const frame& f) {
    if (f.payload_bytes != (f.size <= inline_write_bytes_max ? f.size : 0))
        return broken(f, std::to_string(f.payload_bytes) + " bytes of payload for a write of " + std::to_string(f.size));
    auto s = begin(lane, f, tcp_serving::kind::write);
    if (!s) return s.error();
    admit(**s, f, check(f, f.size, access::remote_write), f.size);
    if (f.type == frame_type::write_immediate) {
        auto position = connection_.messages().reserve_immediate();
        if (!position) return position.error();
        (*s)->has_immediate = true;
        (*s)->immediate = f.immediate;
        (*s)->inbox_position = *position;
    }
    return static_cast<flow*>(*s);
}

result<void> tcp_agent::on_atomic(tcp_lane& lane, const frame& f) {
    auto begun = begin(lane, f, tcp_serving::kind::atomic);
    if (!begun) return begun.error();
    tcp_serving& s = **begun;
    grant g = check(f, sizeof(std::uint64_t), access::remote_atomic);
    if (g.share != nullptr && f.address % sizeof(std::uint64_t) != 0) g = {nullptr, frame_status::invalid};
    admit(s, f, g, sizeof(std::uint64_t));
    if (g.share != nullptr) {
        std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(s.memory));
        if (f.type == frame_type::fetch_add) {
            s.value = word.fetch_add(f.operand);
        } else {
            std::uint64_t seen = f.size;
            word.compare_exchange_strong(seen, f.operand);
            s.value = seen;
        }
    }
    s.share = nullptr; // done with it
    lane.send(s);
    return {};
}

result<void> tcp_agent::on_offer(tcp_lane& lane, const frame& f) {
    if (f.size <= eager_bytes_max || f.size > connection_.terms().message_bytes_max)
        return broken(f, "a message of " + std::to_string(f.size) + " bytes, allowed is " +
                             std::to_string(eager_bytes_max + 1) + ".." +
                             std::to_string(connection_.terms().message_bytes_max));
    auto s = begin(lane, f, tcp_serving::kind::message);
    if (!s) return s.error();
    (*s)->size = f.size;
    return connection_.messages().on_offer(**s);
}

result<flow*> tcp_agent::open_data(tcp_lane& lane, const frame& f) {
    tcp_serving* s = lane.servings().find(slot_of(f.id));
    if (s == nullptr || s->id != f.id || s->finished ||
        (s->what != tcp_serving::kind::write && s->what != tcp_serving::kind::message) ||
        (s->what == tcp_serving::kind::message && !s->accepted))
        return broken(f, "operation " + std::to_string(f.id) + " expects no data");
    if (f.address != s->done_bytes || f.payload_bytes > s->size - s->done_bytes)
        return broken(f, std::to_string(f.payload_bytes) + " bytes from " + std::to_string(f.address) +
                             ", expected at most " + std::to_string(s->size - s->done_bytes) + " from " +
                             std::to_string(s->done_bytes));
    return static_cast<flow*>(s);
}

result<void> tcp_agent::on_commit(tcp_lane& lane, const frame& f) {
    tcp_serving* s = lane.servings().find(slot_of(f.id));
    const bool canceled = f.status != frame_status::ok;
    if (s == nullptr || !s->active() || s->id != f.id || s->finished) {
        if (canceled) return {}; // it crossed with our last word
        return broken(f, "operation " + std::to_string(f.id) + " is not under way");
    }
    if (s->what != tcp_serving::kind::write && s->what != tcp_serving::kind::message)
        return broken(f, "operation " + std::to_string(f.id) + " has nothing to commit");
    if (!canceled && s->done_bytes != s->size)
        return broken(f, std::to_string(s->done_bytes) + " of " + std::to_string(s->size) + " bytes have come");
    if (canceled && s->status == frame_status::ok) s->status = frame_status::canceled;
    if (s->what == tcp_serving::kind::write) finish_write(*s);
    else connection_.messages().offer_ended(*s);
    return {};
}

void tcp_agent::finish_write(tcp_serving& s) noexcept {
    if (s.status == frame_status::ok) {
        ++connection_.counters().served_operations;
        connection_.counters().served_bytes += s.size;
    }
    s.share = nullptr;
    s.finished = true;
    if (s.has_immediate) connection_.messages().end_immediate(s.inbox_position, s.immediate, s.size,
                                                              s.status == frame_status::ok);
    s.lane->send(s);
}

result<void> tcp_agent::on_cancel(tcp_lane& lane, const frame& f) {
    tcp_serving* s = lane.servings().find(slot_of(f.id));
    if (s == nullptr || s->id != f.id || s->what != tcp_serving::kind::read) return {}; // it crossed with our last word
    if (s->status == frame_status::ok) s->status = frame_status::canceled;
    return {};
}

void tcp_agent::abandon_all() noexcept {
    for (std::uint32_t i = 0; i < connection_.lane_count(); ++i)
        connection_.lane(i).servings().for_each([](tcp_serving& s) { s.end(); });
}

} // namespace sluice::net
