#pragma once

#include "tests/rdma/fake_verbs.hpp"
#include "tests/support/temporary_directory.hpp"

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

/// What is behind fake_verbs: objects of verbs with what they need beside, and the rules.
namespace sluice::testing {

/// A descriptor that is ready to be read while anything is queued behind it.
class fake_fd {
public:
    fake_fd();
    ~fake_fd();
    fake_fd(const fake_fd&) = delete;
    fake_fd& operator=(const fake_fd&) = delete;
    int get() const noexcept { return fd_; }
    void raise() noexcept; ///< one more is queued
    void lower() noexcept; ///< one less
    bool blocks() const noexcept;

private:
    int fd_;
};

struct fake_device : ibv_context {
    fake_device_options options;
    ibv_device about{};
    fake_fd events;
    std::deque<ibv_async_event> queued;
    std::size_t listed = 0; ///< in lists of devices that are out
    bool unplugged = false;
    bool closed = false;
};
struct fake_pd : ibv_pd {
    std::size_t users = 0;
};
struct fake_mr : ibv_mr {
    int access = 0;
};
struct fake_cq;
struct fake_channel : ibv_comp_channel {
    fake_fd events;
    std::deque<fake_cq*> queued;
};
struct fake_qp;
struct fake_cq : ibv_cq {
    struct entry {
        ibv_wc completion;
        fake_qp* sender = nullptr; ///< null for a receive
        std::uint32_t retires = 0; ///< places in the sender's queue
    };
    std::deque<entry> entries;
    bool is_armed = false;
    std::size_t unacknowledged = 0;
    std::size_t unacknowledged_async = 0;
    std::size_t users = 0;
};
struct fake_receive {
    std::uint64_t id = 0;
    std::vector<ibv_sge> parts;
};
struct fake_srq : ibv_srq {
    std::uint32_t room = 0;
    std::deque<fake_receive> receives;
    std::size_t unacknowledged_async = 0;
    std::size_t users = 0;
};
struct fake_qp : ibv_qp {
    ibv_qp_init_attr init{};
    std::deque<fake_work> work;
    std::uint32_t used = 0;       ///< places of the send queue: posted and not retired by a polled completion
    std::uint32_t unsignaled = 0; ///< done without a completion; the next one retires them
    fake_qp* peer = nullptr;
    bool peer_lost = false;
    bool told_last_wqe = false;
    std::vector<ibv_qp_attr> modifications;
    ibv_mtu path_mtu = IBV_MTU_256;
    std::size_t unacknowledged_async = 0;
};
struct fake_event_channel : rdma_event_channel {
    fake_fd events;
    std::deque<rdma_cm_event*> queued;
};
struct fake_id : rdma_cm_id {
    bool listens = false;
    bool connects = false;
    bool loses_queue_pair = false;
    bool established = false;
    fake_id* peer = nullptr;
    ibv_mtu path_mtu = IBV_MTU_256; ///< of the connecting end's port
    fake_id* from = nullptr; ///< of a request: the id that connects, null for one from nowhere
    std::size_t unacknowledged = 0;
    ibv_context* leads_to = nullptr; ///< once its address is resolved; null: where route_to says
    std::uint8_t leads_to_port = 1;
};
struct fake_event : rdma_cm_event {
    std::vector<std::byte> data;
};

/// A call named an object that isn't there any more, or never was.
[[noreturn]] void not_alive() noexcept;

struct fake_world {
    mutable std::mutex mutex;

    temporary_directory root; ///< what sysfs and /dev say of the devices

    // ---- failing and counting ----
    struct failure {
        std::string call; ///< empty: any
        std::uint64_t nth;
        int error;
    };
    std::vector<failure> failures;
    struct stopped_list {
        std::size_t taken;
        int error;
        bool names_the_next;
    };
    std::optional<stopped_list> stop_list;
    std::string failed;
    std::map<std::string, std::uint64_t, std::less<>> calls;
    std::map<std::pair<std::string, std::thread::id>, std::uint64_t> calls_by_thread;
    std::string held_call;
    ibv_context* held_on = nullptr;
    std::size_t waiting = 0;
    std::condition_variable released;
    /// For a call before it looks at anything; the mutex is free meanwhile.
    void wait_if_held(std::unique_lock<std::mutex>& lock, std::string_view call, const ibv_context* context);
    std::vector<std::string> violations;
    bool leaks_forgiven = false;

    // ---- what lives ----
    std::list<fake_device> devices; // as long as the world
    std::size_t device_lists = 0;
    std::list<std::unique_ptr<fake_pd>> pds;
    std::list<std::unique_ptr<fake_mr>> mrs;
    std::list<std::unique_ptr<fake_channel>> channels;
    std::list<std::unique_ptr<fake_cq>> cqs;
    std::list<std::unique_ptr<fake_srq>> srqs;
    std::list<std::unique_ptr<fake_qp>> qps;
    std::list<std::unique_ptr<fake_event_channel>> event_channels;
    std::list<std::unique_ptr<fake_id>> ids;
    std::size_t unacknowledged = 0;

    std::uint32_t next_key = 0x1001;
    std::uint32_t next_qp_number = 17;
    std::uint16_t next_port = 40000;
    bool automatic = false;
    bool flushes_at_once = true;
    bool hands_over_at_once = true;
    std::set<std::string, std::less<>> held;
    ibv_context* route = nullptr;
    ibv_context* arrival = nullptr; ///< where requests come; null: `route`
    struct from {
        std::string address;
        ibv_context* context;
        std::uint8_t port;
    };
    std::vector<from> routes_from;
    bool has_addresses = true; ///< those of its ids
    std::vector<fake_verbs::connected> connects, accepts, rejects;
    std::vector<int> resolve_times;

    /// The error that this call is to fail with, or 0. Counts it.
    int enter(std::string_view call);
    /// The same of a call that uses a device's context, which must be open.
    int enter(std::string_view call, ibv_context* context);
    void close_unplugged();
    void broken(std::string what) { violations.push_back(std::move(what)); }
    /// By what `object` points to, which must be one of them.
    template <class Fake, class Base>
    static Fake& of(std::list<std::unique_ptr<Fake>>& all, Base* object) {
        for (auto& each : all)
            if (each.get() == object) return *each;
        not_alive();
    }
    template <class Fake>
    static void drop(std::list<std::unique_ptr<Fake>>& all, Fake& object) {
        std::erase_if(all, [&](const auto& each) { return each.get() == &object; });
    }

    // fake_queues.cpp
    fake_mr* memory_of(ibv_pd* pd, std::uint64_t address, std::uint64_t bytes, std::uint32_t key, bool remote,
                       int access);
    void push(fake_cq& cq, const fake_cq::entry& entry);
    void finish(fake_qp& qp, ibv_wc_status status, std::uint32_t vendor_error, std::uint32_t bytes);
    void hand_over(fake_qp& qp);
    void fail_qp(fake_qp& qp);
    void flush(fake_qp& qp);
    ibv_wc_status execute(fake_qp& qp, const fake_work& work, std::uint32_t& bytes);
    void execute_all();
    bool receive(fake_qp& qp, std::span<const std::byte> bytes, const ibv_send_wr* sender);
    void async(ibv_context* context, ibv_async_event event);
    // fake_cm.cpp
    void event(fake_id& id, rdma_cm_event_type what, int status, std::span<const std::byte> data, std::size_t padded,
               const rdma_conn_param& with = {}, fake_id* listener = nullptr);
    const from* route_of(const sockaddr& source) const;
    fake_id& make_id(rdma_event_channel* channel, void* context, rdma_port_space space);
    bool is_held(std::string_view call) const { return held.contains(call); }
};

std::uint64_t length_of(const std::vector<ibv_sge>& parts) noexcept;

/// The one that lives.
fake_world& the_world() noexcept;

void fill_device_calls(rdma::verbs& table);
void fill_queue_calls(rdma::verbs& table);
void fill_cm_calls(rdma::verbs& table);

} // namespace sluice::testing
