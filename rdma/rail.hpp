#pragma once

#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "rdma/device.hpp"
#include "rdma/verbs.hpp"
#include "rdma/witness.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace sluice::rdma {

class queue_pair;

/// One device as one executor uses it: the completion queues with their channel, polled by the executor and armed before
/// it sleeps; the shared receive queue with its slots; the queue pairs by number.
///
/// Lifetime: shared by what uses it; the last one out, on its executor's thread, destroys it, in the order that verbs
/// demand. Thread rule: executor-bound.
class rail final {
public:
    /// The rail of this executor on this device, made if there is none. Its verbs objects are made on a helper thread.
    /// Errors: a limit of the device or of the process (memlock), by number.
    static task<result<std::shared_ptr<rail>>> of(device& on);
    ///@{
    /// The parts of `of`, for an object that is destroyed at once and so can't await a task: what there is, or null, on
    /// the executor's thread; a new one that nobody polls yet, on a helper thread; and putting that into service, on the
    /// executor's thread again, which gives the one in service if another was faster. One that is not put into service
    /// may be destroyed on either.
    static std::shared_ptr<rail> existing(executor& home, device& on) noexcept;
    static result<std::shared_ptr<rail>> make(executor& home, device& on);
    static std::shared_ptr<rail> install(std::shared_ptr<rail> made);
    ///@}
    ~rail();

    executor& home() const noexcept;
    device& on() const noexcept;
    /// A completion queue failed, and with it everything that reports to it: a new queue pair needs a new rail.
    bool broken() const noexcept;

    /// Room in the receive queue for a connection's slots, posted from now on: so many that its peer may use. Fewer than
    /// `wanted` when the device's queue is nearly full. Errors: out_of_resources when less than `least` are left, with
    /// the numbers.
    result<std::uint32_t> add_slots(std::uint32_t least, std::uint32_t wanted);
    void remove_slots(std::uint32_t count) noexcept;

    /// What the peers of this rail read, where the device has quirks::confirms_by_reading.
    std::optional<rdma::witness> witness() const noexcept;

    struct stats {
        std::uint64_t completions = 0;    ///< found in the completion queues
        std::uint64_t work_posted = 0;    ///< work requests given to send queues
        std::uint64_t posts = 0;          ///< lists of them: doorbells
        std::uint64_t events = 0;         ///< wake-ups by the completion channel
        std::uint32_t queue_pairs = 0;    ///< alive
        std::uint32_t slots = 0;          ///< in the receive queue, or on their way back to it
    };
    stats counters() const noexcept;

private:
    friend class queue_pair;
    struct impl;
    explicit rail(std::unique_ptr<impl> made) noexcept;
    std::unique_ptr<impl> impl_;
};

} // namespace sluice::rdma
