#pragma once

#include <sluice/executor.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "rdma/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

namespace sluice::rdma {

class cm_id;

/// An event of the connection manager, copied and acknowledged [rdma_get_cm_event(3)].
struct cm_event {
    static constexpr int failed_here = -1; ///< of `status`: a step of librdmacm on this side, which did not say why

    rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
    int status = 0;                      ///< 0, a negative errno value, failed_here, or the reject reason
    std::vector<std::byte> private_data; ///< may be padded with zeros to the transport's fixed length
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::unique_ptr<cm_id> request; ///< of RDMA_CM_EVENT_CONNECT_REQUEST: the new id
};

/// Who hears of an id's events, on its executor's thread, after they were acknowledged: the id may be destroyed there.
class cm_observer {
public:
    virtual void on_cm_event(cm_id& id, cm_event e) noexcept = 0;

protected:
    ~cm_observer() = default;
};

/// The event channel of one executor: a descriptor that is read until it is empty whenever it is ready, events copied,
/// acknowledged, and handed to the observer of their id.
///
/// Lifetime: shared by the ids made on it. Thread rule: executor-bound.
class connection_manager : public std::enable_shared_from_this<connection_manager> {
public:
    /// This thread's executor's; made if there is none. Errors: why there is no RDMA here (no device node, no
    /// permission), out_of_resources.
    static result<std::shared_ptr<connection_manager>> of(executor& home);
    ~connection_manager();
    executor& home() const noexcept;

    struct impl;
    impl& internals() noexcept { return *impl_; }

private:
    explicit connection_manager(std::unique_ptr<impl> made) noexcept;
    std::unique_ptr<impl> impl_;
};

/// No event of a channel is got while a helper thread destroys an id, or the queue pair of one: rdma_get_cm_event itself
/// looks at the id of an event and moves its queue pair to another state, without a lock
/// [librdmacm's cma.c: ucma_process_conn_resp, ucma_modify_qp_err].
///
/// Lifetime: from before the call is given to a helper thread until it is through, on the executor's thread; keeps the
/// channel.
class cm_silence {
public:
    explicit cm_silence(connection_manager& of);
    /// Events that were held back are got now.
    ~cm_silence();
    cm_silence(const cm_silence&) = delete;
    cm_silence& operator=(const cm_silence&) = delete;

    /// On the helper thread, around the destroying alone: others wait for helper threads that are busy, not for this.
    /// Waits for an event that is just being got.
    std::shared_lock<std::shared_mutex> begin();

private:
    std::shared_ptr<connection_manager> of_;
};

/// An id of the connection manager: an address, a listener, or a connection.
///
/// Thread rule: executor-bound.
class cm_id {
public:
    static result<std::unique_ptr<cm_id>> create(connection_manager& on);
    /// The queue pair is gone already. Every event was acknowledged, so that this does not wait for itself.
    ~cm_id();
    /// Destroys it on a helper thread, where ending a connection may take a while; its observer hears of nothing more,
    /// and those of the executor's other ids of nothing while it is done [cm_silence].
    static task<void> destroy(std::unique_ptr<cm_id> id);

    void observe(cm_observer* observer) noexcept; ///< null: events are dropped
    rdma_cm_id* get() const noexcept { return id_; }
    connection_manager& manager() const noexcept { return *manager_; }
    /// "rdma://10.0.0.2:7471"
    std::string local_address() const;
    std::string peer_address() const;
    /// False once local_address() was taken from this host.
    bool has_local_address() const noexcept;

private:
    friend class connection_manager;
    cm_id(std::shared_ptr<connection_manager> manager, rdma_cm_id* id) noexcept;
    std::shared_ptr<connection_manager> manager_;
    rdma_cm_id* id_;
    cm_observer* observer_ = nullptr;
};

} // namespace sluice::rdma
