#pragma once

#include <sluice/executor.hpp>
#include <sluice/sleep.hpp>

#include "net/background.hpp"
#include "rdma/assembly.hpp"
#include "rdma/handshake.hpp"
#include "rdma/rail_maker.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace sluice::rdma {

class rdma_listener;

/// A connection on its way in: its lanes, from the first one's request until all of them are established, or until the
/// time is up. Each lane has a coroutine of its own; none waits for another connection's.
class arrival {
public:
    /// The deadline runs from here on.
    arrival(rdma_listener& listener, executor& home, const std::array<std::byte, 16>& number);
    /// Ends what runs; waits for calls on helper threads.
    ~arrival();
    arrival(const arrival&) = delete;
    arrival& operator=(const arrival&) = delete;

    const std::array<std::byte, 16>& number() const noexcept { return number_; }
    /// Whether this request has a place: the first lane in a new one, a further lane that was agreed on and is not
    /// there.
    bool expects(const greeting& request) const noexcept;
    /// Takes it; `e` is its event.
    void add(cm_event e, const greeting& request);
    /// Ends it: the lanes let go of what they have, one after another.
    void fail() noexcept;
    /// Makes the lanes look again at what they wait for.
    void nudge() noexcept;

    bool failed() const noexcept { return failed_; }
    /// Nothing runs any more.
    bool over() const noexcept;

private:
    struct lane final : cm_observer {
        arrival& owner;
        greeting request;
        std::uint8_t responder_resources;
        std::uint8_t initiator_depth;
        bool answered = false;    // accepted or refused
        bool established = false; // as the event says
        bool ready = false;
        bool done = false;
        std::optional<error> failure; // of making the queue pair
        net::parking_spot news;
        net::background work;

        lane(arrival& o, const greeting& r, const cm_event& e) noexcept;
        void on_cm_event(cm_id& id, cm_event e) noexcept override;
    };
    struct timer : detail::timer_node {
        arrival* owner = nullptr;
    };

    void give_up() noexcept; // the time is over
    net::background receive(lane& l);
    /// The steps of it that do not wait; false: the connection has failed.
    bool check_port(lane& l);
    bool take_rail(lane& l);
    bool accept(lane& l);
    bool settle(lane& l);
    void refuse(lane& l, greeting::refusal why, const error& cause);
    rdma_lane_parts& parts_of(const lane& l) noexcept { return parts_.lanes[l.request.lane]; }

    rdma_listener& listener_;
    executor& home_;
    const std::array<std::byte, 16> number_;
    bool failed_ = false;
    bool complete_ = false;
    greeting agreed_; // once the rail is there
    greeting first_;  // the first lane's request
    std::shared_ptr<rail_maker> maker_; // from the first lane on
    assembly parts_;  // by number of the lane
    std::vector<std::unique_ptr<lane>> lanes_;
    timer timer_;
};

} // namespace sluice::rdma
