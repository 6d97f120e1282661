#include "tests/rdma/fake_verbs.hpp"
#include "tests/rdma/fake_world.hpp"

#include <algorithm>
#include <cstring>

// What devices do with work requests.
namespace sluice::testing {

namespace {

std::byte* at(std::uint64_t address) noexcept { return reinterpret_cast<std::byte*>(address); }

} // namespace

std::uint64_t length_of(const std::vector<ibv_sge>& parts) noexcept {
    std::uint64_t sum = 0;
    for (const ibv_sge& each : parts) sum += each.length;
    return sum;
}

std::vector<std::byte> fake_work::payload() const {
    std::vector<std::byte> all = inlined;
    for (const ibv_sge& part : parts) all.insert(all.end(), at(part.addr), at(part.addr) + part.length);
    return all;
}

/// iWARP: what TCP has taken has completed.
void fake_world::hand_over(fake_qp& qp) {
    if (static_cast<const fake_device&>(*qp.context).options.transport != IBV_TRANSPORT_IWARP) return;
    for (fake_work& each : qp.work) {
        if (each.handed_over || (each.request.opcode != IBV_WR_SEND && each.request.opcode != IBV_WR_RDMA_WRITE))
            continue;
        each.handed_over = true;
        if ((each.request.send_flags & IBV_SEND_SIGNALED) == 0) continue;
        fake_cq::entry entry{};
        entry.completion.wr_id = each.request.wr_id;
        entry.completion.qp_num = qp.qp_num;
        entry.completion.opcode = each.request.opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
        entry.sender = &qp;
        entry.retires = 1;
        push(of(cqs, qp.send_cq), entry);
    }
}

/// False: no receive is posted.
bool fake_world::receive(fake_qp& qp, std::span<const std::byte> bytes, const ibv_send_wr* sender) {
    if (qp.srq == nullptr) return false;
    fake_srq& srq = of(srqs, qp.srq);
    if (srq.receives.empty()) return false;
    const fake_receive slot = std::move(srq.receives.front());
    srq.receives.pop_front();
    fake_cq::entry entry{};
    entry.completion.wr_id = slot.id;
    entry.completion.qp_num = qp.qp_num;
    entry.completion.opcode = IBV_WC_RECV;
    entry.completion.byte_len = static_cast<std::uint32_t>(bytes.size());
    if (sender != nullptr && sender->opcode == IBV_WR_SEND_WITH_IMM) {
        entry.completion.wc_flags = IBV_WC_WITH_IMM;
        entry.completion.imm_data = sender->imm_data;
    }
    if (bytes.size() > length_of(slot.parts)) {
        entry.completion.status = IBV_WC_LOC_LEN_ERR;
        push(of(cqs, qp.recv_cq), entry);
        fail_qp(qp);
        return true;
    }
    for (const ibv_sge& part : slot.parts) {
        const std::size_t n = std::min<std::size_t>(part.length, bytes.size());
        if (n != 0) std::memcpy(at(part.addr), bytes.data(), n);
        bytes = bytes.subspan(n);
    }
    push(of(cqs, qp.recv_cq), entry);
    return true;
}

namespace {

/// What a device does for one work request, at both ends.
ibv_wc_status one_sided(fake_world& w, fake_qp& peer, const fake_work& work, std::uint64_t length) {
    const bool atomic =
        work.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || work.request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    const bool read = work.request.opcode == IBV_WR_RDMA_READ;
    const std::uint64_t remote = atomic ? work.request.wr.atomic.remote_addr : work.request.wr.rdma.remote_addr;
    const std::uint32_t key = atomic ? work.request.wr.atomic.rkey : work.request.wr.rdma.rkey;
    const int needed = atomic ? IBV_ACCESS_REMOTE_ATOMIC : read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (atomic && remote % 8 != 0) return IBV_WC_REM_INV_REQ_ERR;
    if (length != 0 && w.memory_of(peer.pd, remote, length, key, true, needed) == nullptr) return IBV_WC_REM_ACCESS_ERR;
    if (!atomic && !read) {
        const auto bytes = work.payload();
        if (!bytes.empty()) std::memcpy(at(remote), bytes.data(), bytes.size());
        return IBV_WC_SUCCESS;
    }
    std::uint64_t before = 0;
    const std::byte* from = at(remote);
    if (atomic) {
        std::memcpy(&before, at(remote), sizeof before);
        std::uint64_t after = before + work.request.wr.atomic.compare_add;
        if (work.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
            after = before == work.request.wr.atomic.compare_add ? work.request.wr.atomic.swap : before;
        std::memcpy(at(remote), &after, sizeof after);
        from = reinterpret_cast<const std::byte*>(&before);
    }
    for (const ibv_sge& part : work.parts) {
        if (part.length != 0) std::memcpy(at(part.addr), from, part.length);
        from += part.length;
    }
    return IBV_WC_SUCCESS;
}

} // namespace

ibv_wc_status fake_world::execute(fake_qp& qp, const fake_work& work, std::uint32_t& bytes) {
    const bool into = work.request.opcode == IBV_WR_RDMA_READ || work.request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                      work.request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    for (const ibv_sge& part : work.parts)
        if (part.length != 0 &&
            memory_of(qp.pd, part.addr, part.length, part.lkey, false, into ? IBV_ACCESS_LOCAL_WRITE : 0) == nullptr)
            return IBV_WC_LOC_PROT_ERR;
    const std::uint64_t length = work.inlined.size() + length_of(work.parts);
    bytes = static_cast<std::uint32_t>(length);
    switch (work.request.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return receive(*qp.peer, work.payload(), &work.request) ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR;
    default: return one_sided(*this, *qp.peer, work, length);
    }
}

void fake_world::execute_all() {
    for (bool any = true; any;) {
        any = false;
        for (auto& each : qps) {
            fake_qp& qp = *each;
            if (qp.state != IBV_QPS_RTS || (qp.peer == nullptr && !qp.peer_lost) || qp.work.empty()) continue;
            any = true;
            std::uint32_t bytes = 0;
            const bool lost = qp.peer_lost || qp.peer->state == IBV_QPS_ERR;
            const ibv_wc_status status = lost ? IBV_WC_RETRY_EXC_ERR : execute(qp, qp.work.front(), bytes);
            finish(qp, status, 0, bytes);
            if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR) fail_qp(*qp.peer);
        }
    }
}

} // namespace sluice::testing
