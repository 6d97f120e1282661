#pragma once

#include "benchmarks/raw/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <semaphore>
#include <span>
#include <string>
#include <thread>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace sluice::bench::raw {

/// How a loop waits for completions.
enum class wait {
    poll, ///< looks again at once
    event ///< arms the completion queue, looks once more, and sleeps until its event
};
const char* to_string(wait how) noexcept;

/// "rdma://HOST:0" of the first IPv4 address that an RDMA device of this machine has; empty if there is none, and then
/// `why` says so.
std::string first_rdma_address(std::string& why);

/// One end of a reliable connection, set up by rdma_cm: a queue pair whose sends and receives complete in one queue,
/// and registered memory.
class verbs_end {
public:
    verbs_end() = default;
    ~verbs_end();
    verbs_end(const verbs_end&) = delete;
    verbs_end& operator=(const verbs_end&) = delete;

    /// Takes over an id that has a device.
    void make(rdma_cm_id* id, std::size_t memory_bytes, unsigned sends, unsigned receives);
    /// Uses a queue pair and the completion queue of its work, which are another's; its memory is not registered.
    void borrow(ibv_qp* qp, ibv_cq* cq, std::size_t memory_bytes);
    /// Once it is established: how long a sender waits for a receive that is not there.
    void set_receiver_not_ready_timer();
    rdma_cm_id* id() const noexcept { return id_; }

    ///@{
    /// A list of work requests is built up and posted with one doorbell. The data is `bytes` at an offset into the
    /// memory.
    void add(ibv_wr_opcode what, std::uint64_t number, std::size_t offset, std::size_t bytes,
             const verbs_end* remote = nullptr);
    void post();
    ///@}
    void post_receive(std::uint64_t number, std::size_t offset, std::size_t bytes);
    /// At least one completion, all of which have succeeded.
    std::span<const ibv_wc> next(wait how);

private:
    static constexpr int batch = 16;

    rdma_cm_id* id_ = nullptr;
    ibv_qp* qp_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_mr* mr_ = nullptr;
    std::uint32_t local_key_ = 0;
    std::uint32_t remote_key_ = 0;
    memory memory_;
    std::uint32_t inline_bytes_ = 0;
    unsigned unacknowledged_ = 0;
    ibv_wc seen_[batch]{};
    ibv_send_wr list_[batch]{};
    ibv_sge parts_[batch]{};
    int listed_ = 0;
};

/// Both ends of a connection in this process.
class verbs_pair {
public:
    /// At an address "rdma://HOST:PORT" of this machine; `memory_bytes` at each end.
    verbs_pair(const std::string& address, std::size_t memory_bytes, unsigned sends, unsigned receives);
    ~verbs_pair();

    verbs_end& client() noexcept { return client_; }
    verbs_end& server() noexcept { return server_; }

private:
    rdma_cm_id* listening_ = nullptr;
    verbs_end client_;
    verbs_end server_;
};

struct one_sided_load {
    std::size_t size_bytes;
    unsigned depth;
    wait how;
};
/// READs or WRITEs of one size, `depth` in flight: each that is done starts the next one of its block.
void one_sided(verbs_end& client, const verbs_end& server, ibv_wr_opcode what, const one_sided_load& load,
               std::uint64_t operations);

/// The same between both ends of a connection of its own.
class one_sided_loop {
public:
    one_sided_loop(const std::string& address, const one_sided_load& load);
    void run(ibv_wr_opcode what, std::uint64_t operations) {
        one_sided(pair_.client(), pair_.server(), what, load_, operations);
    }

private:
    one_sided_load load_;
    verbs_pair pair_;
};

/// SENDs of one size. At depth 1 a server sends each back; beyond that it answers only the last one of a run.
class send_loop {
public:
    send_loop(const std::string& address, std::size_t size_bytes, unsigned depth, wait how);
    ~send_loop();
    void run(std::uint64_t operations);

private:
    void serve();
    void serve_one_run();
    void ping_pong(std::uint64_t operations);
    void stream(std::uint64_t operations);

    std::size_t size_bytes_;
    unsigned depth_;
    unsigned receives_;
    wait how_;
    verbs_pair pair_;
    std::uint64_t operations_ = 0; // of the run that serve_one_run() is about
    std::counting_semaphore<> started_{0};
    std::thread server_;
};

} // namespace sluice::bench::raw
