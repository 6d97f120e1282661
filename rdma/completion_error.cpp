#include "rdma/completion_error.hpp"

namespace sluice::rdma {

namespace {

const char* name_of(work::kind what) noexcept {
    switch (what) {
    case work::kind::read: return "read";
    case work::kind::write: return "write";
    case work::kind::fetch_add: return "fetch_add";
    case work::kind::compare_swap: return "compare_swap";
    case work::kind::frame: return "send";
    }
    return "work request";
}

errc code_of(ibv_wc_status status) noexcept {
    switch (status) {
    case IBV_WC_REM_ACCESS_ERR: return errc::access_denied;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR: return errc::peer_lost;
    case IBV_WC_WR_FLUSH_ERR: return errc::closed;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR: return errc::invalid_argument;
    default: return errc::protocol_error;
    }
}

const char* meaning_of(ibv_wc_status status) noexcept {
    switch (status) {
    case IBV_WC_REM_ACCESS_ERR: return "the peer's device refused it: wrong key, range or access";
    case IBV_WC_REM_INV_REQ_ERR: return "the peer's device does not take such a request, or not of this length";
    case IBV_WC_REM_OP_ERR: return "the peer's device could not carry it out";
    case IBV_WC_RETRY_EXC_ERR: return "no acknowledgement after all retries";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "the peer had no receive slot, though it had promised one";
    case IBV_WC_LOC_PROT_ERR: return "the local memory is not registered for it";
    case IBV_WC_LOC_LEN_ERR: return "longer than the device or the port allows";
    case IBV_WC_LOC_QP_OP_ERR: return "the local device could not carry it out";
    case IBV_WC_FATAL_ERR: return "the local device failed";
    default: return "it failed";
    }
}

} // namespace

const char* to_string(ibv_wc_status status) noexcept {
    static constexpr const char* names[] = {
        "IBV_WC_SUCCESS",           "IBV_WC_LOC_LEN_ERR",      "IBV_WC_LOC_QP_OP_ERR",   "IBV_WC_LOC_EEC_OP_ERR",
        "IBV_WC_LOC_PROT_ERR",      "IBV_WC_WR_FLUSH_ERR",     "IBV_WC_MW_BIND_ERR",     "IBV_WC_BAD_RESP_ERR",
        "IBV_WC_LOC_ACCESS_ERR",    "IBV_WC_REM_INV_REQ_ERR",  "IBV_WC_REM_ACCESS_ERR",  "IBV_WC_REM_OP_ERR",
        "IBV_WC_RETRY_EXC_ERR",     "IBV_WC_RNR_RETRY_EXC_ERR", "IBV_WC_LOC_RDD_VIOL_ERR", "IBV_WC_REM_INV_RD_REQ_ERR",
        "IBV_WC_REM_ABORT_ERR",     "IBV_WC_INV_EECN_ERR",     "IBV_WC_INV_EEC_STATE_ERR", "IBV_WC_FATAL_ERR",
        "IBV_WC_RESP_TIMEOUT_ERR",  "IBV_WC_GENERAL_ERR"};
    const auto index = static_cast<std::size_t>(status);
    return index < std::size(names) ? names[index] : "unknown status";
}

bool is_loss(const completion& how) noexcept {
    switch (how.status) {
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_FATAL_ERR: return true;
    default: return false;
    }
}

error error_of(const work& w, const completion& how, const std::string& peer) {
    std::string text = std::string(name_of(w.what)) + " of " + std::to_string(w.bytes) + " bytes with " + peer + ": " +
                       meaning_of(how.status) + " (" + to_string(how.status);
    if (how.vendor_error != 0) text += ", vendor code " + std::to_string(how.vendor_error);
    return {make_error_code(code_of(how.status)), text + ")"};
}

} // namespace sluice::rdma
