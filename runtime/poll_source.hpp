#pragma once

namespace sluice::detail {

/// Something whose completions are found by looking, such as an RDMA completion queue. The executor polls it in every
/// turn. Before it sleeps it arms every source, then polls each once more, so that nothing that arrived in between is
/// slept over [ibv_get_cq_event(3)].
class poll_source {
public:
    poll_source() = default;
    poll_source(const poll_source&) = delete;
    poll_source& operator=(const poll_source&) = delete;

    /// Handles what is there, making coroutines ready; true when it found anything.
    virtual bool poll() noexcept = 0;
    /// Asks for a wake-up of the executor (a descriptor in its ring becoming ready) on the next completion. May make a
    /// coroutine ready that does so: then this is called again before the executor sleeps.
    virtual void arm() noexcept = 0;

protected:
    ~poll_source() = default;
};

} // namespace sluice::detail
