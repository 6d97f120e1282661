#pragma once

#include "rdma/verbs.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::testing {

struct fake_world; // fake_world.hpp

/// A port of a fake device: active, RoCE, MTU 1024, one GID of type RoCE v2 that says ::ffff:10.0.0.<number>.
struct fake_port {
    fake_port();
    ibv_port_attr attributes{};
    std::vector<ibv_gid_entry> gids;
};

/// A fake device, as Soft-RoCE would be. Change what the test is about.
struct fake_device_options {
    fake_device_options();
    std::string name; ///< empty: "fake0", "fake1" in the order added
    ibv_node_type node = IBV_NODE_CA;
    ibv_transport_type transport = IBV_TRANSPORT_IB;
    ibv_device_attr limits{};
    std::uint32_t max_inline_bytes = 256;
    std::vector<fake_port> ports{1};
    bool knows_relaxed_ordering = true; ///< false: reg_mr with it fails with EINVAL
    bool tells_last_wqe = true;         ///< IBV_EVENT_QP_LAST_WQE_REACHED when a queue pair with a shared queue fails
    bool pads_private_data = true;      ///< to 56 bytes of a request, 196 of an acceptance, 148 of a rejection
};

/// A device as soft-iWARP is.
fake_device_options soft_iwarp();

/// How many of each kind live.
struct fake_counts {
    std::size_t device_lists = 0, pds = 0, mrs = 0, channels = 0, cqs = 0, srqs = 0, qps = 0, event_channels = 0,
                ids = 0;
    std::size_t unacknowledged = 0; ///< events of every kind that were got and not acknowledged
    std::size_t all() const noexcept {
        return device_lists + pds + mrs + channels + cqs + srqs + qps + event_channels + ids + unacknowledged;
    }
};

/// A work request of a send queue as it was posted, not executed yet.
struct fake_work {
    ibv_qp* qp = nullptr;
    ibv_send_wr request{};          ///< its sg_list and next are null
    std::vector<ibv_sge> parts;     ///< what sg_list was
    std::vector<std::byte> inlined; ///< of IBV_SEND_INLINE: the bytes at the time of posting
    bool handed_over = false;       ///< over iWARP: it has completed, which says nothing of the peer
    /// The bytes that it sends or writes, gathered now.
    std::vector<std::byte> payload() const;
};

/// A world of RDMA in memory, behind the table of rdma/verbs.hpp for as long as it lives. It counts what lives, refuses
/// what verbs refuse, notes every broken rule of theirs, fails calls on demand, and delivers completions and events: on
/// its own, or when told so.
///
/// The destructor checks (Catch2) that no rule was broken and that nothing is alive. Thread rule: the table's functions
/// on any thread; the rest on the test's thread.
class fake_verbs {
public:
    fake_verbs();
    ~fake_verbs();
    fake_verbs(const fake_verbs&) = delete;
    fake_verbs& operator=(const fake_verbs&) = delete;

    ibv_context* add_device(const fake_device_options& options = {});
    /// The device goes from the machine, and librdmacm notices: its context is closed as soon as no id is bound to it
    /// and no list of devices is out that has it. Whatever is done with it afterwards breaks a rule.
    void unplug(ibv_context* context);

    ///@{
    /// The `nth` call from now of that name fails with `error`; the name is that of the table: "reg_mr". fail_any: of
    /// whatever name; failed() tells which. A call that fails changes nothing. "make_ready": of the steps in
    /// get_cm_event that a queue pair takes when it is accepted, which then says CONNECT_ERROR.
    void fail(std::string_view call, std::uint64_t nth, int error);
    void fail_any(std::uint64_t nth, int error);
    std::string failed() const;
    /// Planned failures that did not happen yet are forgotten.
    void fail_no_more();
    ///@}
    /// The next list that post_send gets stops with `error` after `taken` of it, naming the next one, or none.
    void stop_list(std::size_t taken, int error, bool names_the_next = true);
    /// Calls so far of that name; of all when it is empty.
    std::uint64_t calls(std::string_view call = {}) const;
    /// Of them, those by the thread that asks.
    std::uint64_t calls_here(std::string_view call) const;

    ///@{
    /// Calls of that name on this device wait where they are, on their threads, until they are released.
    void hold_calls(std::string_view call, ibv_context* context);
    std::size_t waiting_calls() const;
    void release_calls();
    ///@}

    fake_counts alive() const;
    /// What broke a rule of verbs, one sentence each. Taken: the destructor doesn't complain of them any more.
    std::vector<std::string> take_violations();
    /// What is alive is no fault, such as after a call to destroy something was made to fail.
    void forgive_leaks();

    ///@{
    /// What the device says of itself [ibv_get_async_event(3)]. Of a queue pair, completion queue or shared queue:
    void async_event(ibv_context* context, ibv_event_type what, std::uint8_t port = 0);
    /// What a port is from now on, without an event.
    void port_state(ibv_context* context, ibv_port_state state, std::uint8_t port = 1);
    void async_event(ibv_qp* qp, ibv_event_type what);
    void async_event(ibv_cq* cq, ibv_event_type what);
    void async_event(ibv_srq* srq, ibv_event_type what);
    ///@}
    /// Takes a GID out of a port's table and says that it has changed.
    void remove_gid(ibv_context* context, std::uint8_t port, std::uint32_t index);
    /// All addresses go from the host, and nobody is told.
    void remove_addresses();
    /// Registered ranges of a device, in the order registered: address, length, keys and access of each.
    struct registered {
        ibv_mr* mr;
        int access;
    };
    std::vector<registered> registrations(ibv_context* context) const;

    // ---- queues ----

    /// On: whatever is posted on connected queue pairs is executed at once. Off, which is how it starts: it waits.
    void automatic(bool on);
    /// Executes all that waits on connected queue pairs, until nothing is left.
    void execute_all();
    /// Makes a pair of them, as if connected to each other, ready to send.
    void wire(ibv_qp* a, ibv_qp* b);
    /// Posted and neither executed nor completed, oldest first.
    std::vector<fake_work> waiting(ibv_qp* qp) const;
    /// Completes the oldest `count` of them without executing. A failure moves the queue pair to error.
    void complete(ibv_qp* qp, std::size_t count, ibv_wc_status status = IBV_WC_SUCCESS, std::uint32_t vendor_error = 0);
    /// Puts bytes into the oldest receive of the queue pair's shared queue, as if its peer had sent them.
    void deliver(ibv_qp* qp, std::span<const std::byte> bytes);
    /// Completes a receive of the shared queue with a failure, for this queue pair.
    void fail_receive(ibv_qp* qp, ibv_wc_status status);
    /// Whether a queue pair that fails flushes its work at once (so it starts), or only in flush().
    void flushes_at_once(bool on);
    void flush(ibv_qp* qp);
    /// Whether a device that speaks iWARP completes writes and sends as soon as they are posted (so it starts), even
    /// behind a read, or only when they are executed, as when TCP takes no more. Either way that is not the peer's word.
    void hands_over_at_once(bool on);
    ///@{
    /// A state of the connected kind, without a connection manager.
    void set_state(ibv_qp* qp, ibv_qp_state state);
    std::size_t receives_posted(ibv_srq* srq) const;
    std::size_t queued_completions(ibv_cq* cq) const;
    bool armed(ibv_cq* cq) const;
    ibv_qp_init_attr init_of(ibv_qp* qp) const;               ///< as granted
    std::vector<ibv_qp_attr> modifications(ibv_qp* qp) const; ///< the arguments of modify_qp, in order
    ibv_mtu path_mtu(ibv_qp* qp) const;
    std::vector<ibv_qp*> queue_pairs() const;                 ///< that live, in the order made
    ///@}
    /// The next queue pair gets this number; none that lives has it.
    void next_queue_pair_number(std::uint32_t number);
    /// A success of a send that nobody posted, or that has completed before.
    void stray_completion(ibv_cq* cq, std::uint64_t wr_id, std::uint32_t qp_num);
    /// A wake-up of a completion channel without a completion.
    void spurious_event(ibv_cq* cq);

    // ---- connection manager ----

    /// The world's own answer to a call of this name does not come: "resolve_addr", "resolve_route", "connect",
    /// "accept", "reject" or "disconnect". The test sends the event.
    void hold(std::string_view call);
    void release(std::string_view call);
    /// Ids resolve to this device from now on. So it starts with the first one.
    void route_to(ibv_context* context);
    /// And requests come over this one, another port of the same network.
    void arrive_at(ibv_context* context);
    /// Ids that leave from, or are bound to, this IP address belong to this port; null: nothing can be reached from
    /// there.
    void route_from(std::string_view address, ibv_context* context, std::uint8_t port = 1);
    void cm_event(rdma_cm_id* id, rdma_cm_event_type what, int status = 0, std::span<const std::byte> private_data = {},
                  std::uint8_t responder_resources = 0, std::uint8_t initiator_depth = 0);
    /// A request from nowhere, to an id that listens; its new id comes with the event.
    void connect_request(rdma_cm_id* listener, std::span<const std::byte> private_data,
                         std::uint8_t responder_resources = 1, std::uint8_t initiator_depth = 1);
    struct connected {
        rdma_cm_id* id;
        rdma_conn_param parameters; ///< private_data is null
        std::vector<std::byte> private_data;
    };
    ///@{
    /// The arguments of connect, accept and reject, in order; reject has private data only.
    std::vector<connected> connects() const;
    std::vector<connected> accepts() const;
    std::vector<connected> rejects() const;
    std::vector<int> resolve_times() const; ///< of each resolve_addr, in milliseconds
    std::vector<rdma_cm_id*> ids() const; ///< that live, in the order made
    std::vector<rdma_cm_id*> listening() const;
    ///@}

private:
    std::unique_ptr<fake_world> world_;
};

} // namespace sluice::testing
