#include <sluice/blocking.hpp>
#include <sluice/contract.hpp>

#include "net/endpoint.hpp"
#include "rdma/connection_manager.hpp"
#include "rdma/connection_manager_impl.hpp"
#include "runtime/log.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::rdma {

namespace {

void destroy_id(rdma_cm_id* id) noexcept {
    if (api().destroy_id(id) != 0)
        SLUICE_LOG(error, "RDMA connection manager: rdma_destroy_id: ", std::strerror(errno), "; the id is lost");
}

std::string text_of(const sockaddr_storage& from) {
    if (from.ss_family != AF_INET && from.ss_family != AF_INET6) return "rdma://unknown";
    net::endpoint e;
    e.length = from.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&e.storage, &from, e.length);
    return e.to_address(scheme::rdma).to_string();
}

} // namespace

cm_id::cm_id(std::shared_ptr<connection_manager> manager, rdma_cm_id* id) noexcept
    : manager_(std::move(manager)), id_(id) {
    manager_->internals().ids.emplace(id_, this);
}

result<std::unique_ptr<cm_id>> cm_id::create(connection_manager& on) {
    rdma_cm_id* id = nullptr;
    if (api().create_id(on.internals().channel, &id, nullptr, RDMA_PS_TCP) != 0)
        return error::from_errno(errno, "RDMA connection manager: rdma_create_id");
    return std::unique_ptr<cm_id>(new cm_id(on.shared_from_this(), id));
}

cm_id::~cm_id() {
    if (id_ == nullptr) return;
    SLUICE_EXPECTS(executor::current() == &manager_->home(),
                   "cm_id: destroyed on another thread than its executor's; see destroy()");
    SLUICE_EXPECTS(id_->qp == nullptr, "cm_id: destroyed before its queue pair");
    manager_->internals().ids.erase(id_);
    destroy_id(id_);
}

task<void> cm_id::destroy(std::unique_ptr<cm_id> id) {
    SLUICE_EXPECTS(id != nullptr && id->id_->qp == nullptr, "cm_id: destroyed before its queue pair");
    rdma_cm_id* raw = std::exchange(id->id_, nullptr);
    id->manager_->internals().ids.erase(raw);
    cm_silence silence(*id->manager_);
    co_await run_blocking([raw, &silence] {
        const auto quiet = silence.begin();
        destroy_id(raw);
    });
}

void cm_id::observe(cm_observer* observer) noexcept { observer_ = observer; }

std::string cm_id::local_address() const { return text_of(id_->route.addr.src_storage); }

bool cm_id::has_local_address() const noexcept { return api().is_of_this_host(id_->route.addr.src_storage); }

std::string cm_id::peer_address() const { return text_of(id_->route.addr.dst_storage); }

} // namespace sluice::rdma
