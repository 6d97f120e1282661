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

    enum class drained : std::uint8_t { fine, failed, held_back };
    /// Reads and hands out what is there, though not without end: what is left makes the descriptor ready again.
    /// `failed`: the channel does; `held_back`: somebody wants silence.
    drained drain() noexcept;
    /// The copy of an event, which is acknowledged; `cause`: errno as it was when the event had been got.
    cm_event take(rdma_cm_event* raw, int cause) noexcept;
    net::background watch();
    void pause() noexcept;

    executor& home;
    rdma_event_channel* channel;
    connection_manager* owner = nullptr;
    std::unordered_map<rdma_cm_id*, cm_id*> ids; // by what events name, which may be gone by then
    std::uint32_t silences = 0;
    bool held_back = false;       // the watcher waits for the end of a silence
    std::shared_mutex being_used; // alone: an event is got; shared: something is destroyed
    net::parking_spot resume;
    timer pausing;
    net::background watcher;
};

} // namespace sluice::rdma
