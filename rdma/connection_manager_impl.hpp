#pragma once

#include <sluice/sleep.hpp>

#include "net/background.hpp"
#include "rdma/connection_manager.hpp"

#include <unordered_map>

namespace sluice::rdma {

/// The channel, the coroutine that watches it, and the ids that events are for.
struct connection_manager::impl {
    struct timer : detail::timer_node {
        impl* owner = nullptr;
    };

    impl(executor& h, rdma_event_channel* c) noexcept;
    ~impl();
    impl(const impl&) = delete;
    impl& operator=(const impl&) = delete;

    /// Reads and hands out what is there, though not without end: what is left makes the descriptor ready again. False
    /// when the channel fails.
    bool drain() noexcept;
    /// `cause`: errno as it was when the event had been got.
    void hand_out(rdma_cm_event* raw, int cause) noexcept;
    net::background watch();
    ///@{
    /// In between another thread destroys an id of the channel: no event is got meanwhile, which might be of that id.
    void begin_destroy() noexcept { ++destroying; }
    void end_destroy() noexcept;
    ///@}
    void pause() noexcept;

    executor& home;
    rdma_event_channel* channel;
    connection_manager* owner = nullptr;
    std::unordered_map<rdma_cm_id*, cm_id*> ids; // by what events name, which may be gone by then
    std::uint32_t destroying = 0;
    bool held = false; // the watcher waits for end_destroy
    net::parking_spot resume;
    timer pausing;
    net::background watcher;
};

} // namespace sluice::rdma
