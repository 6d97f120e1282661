#pragma once

#include <sluice/executor.hpp>
#include <sluice/memory.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "rdma/verbs.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::rdma {

struct quirks; // rdma/quirks.hpp

/// Told about what happens to a device, on its own executor's thread.
class device_observer {
public:
    explicit device_observer(executor& home) noexcept : home_(home) {}
    executor& home() const noexcept { return home_; }
    /// `qp_num` for events of a queue pair (IBV_EVENT_QP_*), `port` for those of a port, else 0
    /// [ibv_get_async_event(3)].
    virtual void on_device_event(ibv_event_type what, std::uint32_t qp_num, std::uint8_t port) noexcept = 0;
    /// Asked before an event of a completion queue or shared receive queue is handed out, which may be gone: whether it
    /// is one of this observer's. The pointer is for comparing only.
    virtual bool owns_queue(const void*) const noexcept { return true; }

protected:
    ~device_observer() = default;

private:
    executor& home_;
};

/// An RDMA device as this process uses it: one protection domain, the memory known to it, its limits, its events.
/// Opened when first needed and then kept until the process ends or the device goes. Its context, which is librdmacm's,
/// is not closed before this is, nor replaced by another one at its address.
///
/// Thread rule: thread-safe, except where said.
class device {
public:
    /// The device behind a verbs context, as a connection manager id names it; opens it if need be, which registers all
    /// memory that is known to the library, or waits for another thread that opens it: for a helper thread. One that is
    /// gone is replaced by what has come in its place. Errors: out_of_resources (memlock: limit, need and remedy), what
    /// verbs report.
    static result<device*> of(ibv_context* context);
    /// The same for a task, which holds no helper thread up where another one opens the device. Errors: also
    /// `condition::canceled`, while it waits for that.
    static task<result<device*>> open(ibv_context* context);
    /// The device behind it if it was opened, or null; it may have gone since. At once, on any thread.
    static device* known(const ibv_context* context) noexcept;
    /// For tests: gives everything back to verbs. Nothing of rdma/ lives.
    static void close_all() noexcept;

    const std::string& name() const noexcept;     ///< "rxe0"
    ibv_context* context() const noexcept;
    ibv_pd* pd() const noexcept;
    const ibv_device_attr& limits() const noexcept;
    const rdma::quirks& quirks() const noexcept;
    /// Largest message of a port [ibv_query_port(3)], at least 4096.
    std::uint32_t max_message_bytes(std::uint8_t port) const noexcept;
    /// False from device removal on.
    bool is_alive() const noexcept;
    /// Asks now [ibv_query_port(3)]; nothing when the device does not answer any more.
    std::optional<bool> is_port_up(std::uint8_t port) const noexcept;

    /// The local key of registered memory; as many steps as there are devices, on any thread. Errors, which cost no
    /// allocation: why this memory could not be registered here; errc::invalid_argument for memory that neither the pool
    /// nor a memory_region announced.
    result<std::uint32_t> local_key(const detail::registration& memory) noexcept;

    /// A registration of exactly this range with exactly this access, apart from local ones; atomics are left out where
    /// the device has none. For a helper thread. Errors: as verbs report, with sizes, limits and remedy.
    result<ibv_mr*> register_shared(region_view memory, access granted);
    /// After it returns the device touches the memory no more for that key.
    void deregister_shared(ibv_mr* mr) noexcept;
    /// Memory of rdma/ itself (headers, receive slots): local write only; with `peers_read` for remote reads too, and as
    /// the target of reads.
    result<ibv_mr*> register_private(std::byte* memory, std::size_t bytes, bool peers_read = false);
    void deregister_private(ibv_mr* mr) noexcept;

    ///@{
    /// An observer hears of everything between the two calls, both on its executor's thread.
    void add(device_observer& observer);
    void remove(device_observer& observer) noexcept;
    ///@}
    /// The descriptor of its events, to be watched by observers; drain_events() reads all that is there, calls the
    /// observers of this thread and posts to the others. Events that others read for this thread's are handed out too.
    int event_fd() const noexcept;
    void drain_events() noexcept;

    device(const device&) = delete;
    device& operator=(const device&) = delete;

private:
    struct impl;
    explicit device(std::unique_ptr<impl> made) noexcept;
    ~device();
    std::unique_ptr<impl> impl_;
};

} // namespace sluice::rdma
