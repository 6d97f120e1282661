#pragma once

#include "tests/rdma/bare_wire.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <poll.h>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace sluice::bare {

/// Memory that the device of a peer knows.
class memory {
public:
    memory(ibv_pd* pd, std::size_t size_bytes, int access);
    memory(memory&& other) noexcept : bytes_(std::move(other.bytes_)), mr_(std::exchange(other.mr_, nullptr)) {}
    memory& operator=(memory&&) = delete;
    ~memory();

    std::span<std::byte> data() noexcept { return bytes_; }
    std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
    std::uint32_t lkey() const noexcept { return mr_->lkey; }
    std::uint32_t rkey() const noexcept { return mr_->rkey; }

private:
    bytes bytes_;
    ibv_mr* mr_;
};

/// A connection request, not answered yet.
struct request {
    rdma_cm_id* id = nullptr;
    bytes private_data; ///< with the zeros that the transport may add
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
};

/// The other side refused.
struct rejected : failure {
    rejected(int with_status, bytes told)
        : failure("bare peer: rejected, status " + std::to_string(with_status)), status(with_status),
          private_data(std::move(told)) {}
    int status;
    bytes private_data;
};

/// Our half of a connection on bare rdma_cm and verbs: one queue pair, blocking calls. Every wait is bounded, and fails
/// with bare::failure.
///
/// It has as many receive slots as it tells the other side (hello::slots), and 4 more for what needs none. It counts
/// what the other side spends, and fails when that is too much; "receiver not ready" is never retried, so that it is an
/// error.
class peer {
public:
    /// Connects to "rdma://HOST:PORT". Throws rejected.
    static std::unique_ptr<peer> connect(const std::string& address, std::span<const std::byte> private_data,
                                         std::uint16_t slots = 16);
    ~peer();
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;

    /// The private data of the other side: of its request, or of its acceptance.
    std::span<const std::byte> greeted_with() const noexcept { return greeted_with_; }
    std::string device_name() const;
    bool has_atomics() const;
    /// Its port's MTU, as a greeting has it among the capabilities; over iWARP none.
    std::uint8_t mtu_bits() const;
    bool is_iwarp() const noexcept { return id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP; }

    // ---- frames ----
    /// Spends a slot of the other side, waiting for one if need be, a message credit too where the type costs one, and
    /// gives back all that is owed. The payload decides payload_bytes.
    void send(frame f);
    /// These bytes and nothing else; false when the queue pair does not take them any more.
    bool send_exactly(std::span<const std::byte> content);
    bool send_exactly(const frame& f) { return send_exactly(encode(f)); }
    /// The next frame that is no pure `credit`. Gives back slots by a frame of its own when half of them are owed.
    frame receive();
    /// The same, which must be of this type.
    frame receive(frame::kind wanted);
    /// Waits for one more frame, `credit` included, and counts what it gives back; receive() gets it later.
    void wait_for_frame();
    /// Frames and messages that the other side can take now.
    std::uint32_t slots() const noexcept { return slots_; }
    std::uint32_t credits() const noexcept { return credits_; }
    void set_limits(std::uint32_t slots, std::uint32_t credits) noexcept { slots_ = slots, credits_ = credits; }

    // ---- one-sided ----
    memory make_memory(std::size_t size_bytes, int access) { return {pd_, size_bytes, access}; }
    ibv_wc_status read(std::uint64_t address, std::uint32_t key, memory& into);
    ibv_wc_status write(std::uint64_t address, std::uint32_t key, memory& from);

    // ---- the end ----
    /// Until the other side has disconnected.
    void wait_until_disconnected();
    void disconnect();

private:
    friend class acceptor;
    peer(rdma_cm_id* id, rdma_event_channel* channel, std::uint16_t slots);
    void make_queue_pair();
    /// A greeting with what it must have over iWARP; what is none stays as it is.
    bytes with_witness(std::span<const std::byte> greeting);
    void post_receive(std::size_t slot);
    ibv_wc_status run(ibv_send_wr& work);
    bool look();
    void wait_for_something();
    void sleep_until_something();
    void wait_for(std::span<pollfd> watched);
    void nudge();
    void take_cm_events();
    void take_in(std::span<const std::byte> content);

    rdma_cm_id* id_;
    rdma_event_channel* channel_;
    std::uint16_t slots_here_;
    ibv_pd* pd_ = nullptr;
    ibv_comp_channel* completions_ = nullptr;
    ibv_cq* cq_ = nullptr;
    std::optional<memory> receive_memory_;
    std::optional<memory> send_memory_;
    std::optional<memory> witness_;
    bytes greeted_with_;
    std::deque<frame> received_;
    std::optional<ibv_wc_status> sent_;
    std::uint32_t slots_ = 0;
    std::uint32_t credits_ = 0;
    std::uint32_t owed_slots_ = 0;
    std::uint32_t owed_credits_ = 0;
    std::uint64_t frames_ = 0;
    bool disconnected_ = false;
    int nudges_left_ = 0;
    bool flushed_ = false;
};

/// Listens, on bare rdma_cm.
class acceptor {
public:
    /// "rdma://HOST:PORT", port 0 for any.
    explicit acceptor(const std::string& address);
    ~acceptor();
    acceptor(const acceptor&) = delete;
    acceptor& operator=(const acceptor&) = delete;

    /// With the real port.
    std::string address() const;
    request next();
    std::unique_ptr<peer> accept(const request& r, std::span<const std::byte> private_data, std::uint16_t slots = 16);
    void reject(const request& r, std::span<const std::byte> private_data);

private:
    rdma_event_channel* channel_;
    rdma_cm_id* id_ = nullptr;
    std::string host_;
};

/// The device that an address "rdma://HOST:PORT" of this machine belongs to. Throws when it is none's.
std::string device_of(const std::string& address);
/// What a device counts under this name, or nothing where it doesn't.
std::optional<std::uint64_t> hardware_counter(const std::string& device, const std::string& name);

} // namespace sluice::bare
