#include "rdma/device_impl.hpp"
#include "rdma/limits.hpp"

#include <sluice/contract.hpp>

#include "runtime/log.hpp"

#include <cerrno>
#include <cstring>

namespace sluice::rdma {

/// What a device knows of one stretch of memory: its key, or why there is none.
struct device::impl::keys : detail::registrar_record {
    explicit keys(result<ibv_mr*> got) : registered(std::move(got)) {}
    const result<ibv_mr*> registered;
};

result<ibv_mr*> device::impl::register_memory(const void* memory, std::size_t bytes, int access, bool may_relax) {
    if (!alive.load(std::memory_order_relaxed)) return error::from_errno(ENODEV, "rdma device " + name + " is gone");
    if (bytes > limits.max_mr_size)
        return error(make_error_code(errc::out_of_resources),
                     "memory of " + std::to_string(bytes) + " bytes, " + name + " registers at most " +
                         std::to_string(limits.max_mr_size) +
                         " in one piece (max_mr_size); make the pool or region smaller");
    auto* const start = const_cast<void*>(memory); // the device writes only where `access` lets it
    for (;;) {
        const bool relaxed = may_relax && relaxed_ordering.load(std::memory_order_relaxed);
        errno = 0;
        ibv_mr* const made = api().reg_mr(pd, start, bytes, relaxed ? access | IBV_ACCESS_RELAXED_ORDERING : access);
        if (made != nullptr) return made;
        const int reason = errno;
        if (!relaxed || (reason != EINVAL && reason != EOPNOTSUPP))
            return verbs_error(reason, "ibv_reg_mr of " + std::to_string(bytes) + " bytes on " + name, bytes);
        relaxed_ordering.store(false, std::memory_order_relaxed);
        SLUICE_LOG(debug, "rdma: ", name, " does not take relaxed ordering");
    }
}

void device::impl::deregister(ibv_mr* mr) noexcept {
    const int failed = api().dereg_mr(mr);
    // What went with its device can't be given back; nor need it.
    if (failed != 0 && alive.load(std::memory_order_relaxed))
        SLUICE_LOG(error, "ibv_dereg_mr on ", name, ": ", std::strerror(failed), "; the memory stays locked");
}

/// Local only: what peers may reach is registered apart. Whoever polls such memory for its last byte would be misled by
/// relaxed ordering; transfers are over when their completion says so, which it does not change [ibv_reg_mr(3)].
std::unique_ptr<detail::registrar_record> device::impl::attach(const detail::registration& memory) noexcept {
    if (memory.kind == memory_kind::device)
        return std::make_unique<keys>(error(make_error_code(errc::unsupported),
                                            "memory of a GPU on " + name + ": not in this version of sluice"));
    const int access = IBV_ACCESS_LOCAL_WRITE | (quirks.read_target_needs_remote_write ? IBV_ACCESS_REMOTE_WRITE : 0);
    auto made = std::make_unique<keys>(register_memory(memory.base, memory.size_bytes, access, true));
    if (!made->registered) {
        const error& why = made->registered.error();
        const std::lock_guard lock(mutex);
        if (why == condition::out_of_resources && memory.size_bytes <= limits.max_mr_size && !refused) refused = why;
        SLUICE_LOG(debug, "rdma: ", why.message());
    }
    return made;
}

void device::impl::detach(detail::registrar_record& what) noexcept {
    if (const auto& mine = static_cast<keys&>(what); mine.registered) deregister(*mine.registered);
}

result<std::uint32_t> device::local_key(const detail::registration& memory) noexcept {
    const auto* const found = static_cast<const impl::keys*>(detail::find_record(memory, *impl_));
    if (found == nullptr) return impl_->not_announced;
    if (!found->registered) return found->registered.error();
    return (*found->registered)->lkey;
}

result<ibv_mr*> device::register_shared(region_view memory, access granted) {
    if (memory.size_bytes() == 0) return error(errc::invalid_argument, "share: 0 bytes, at least 1 is needed");
    if (const auto* home = memory.registration(); home != nullptr && home->kind == memory_kind::device)
        return error(make_error_code(errc::unsupported),
                     "share of memory of a GPU on " + name() + ": not in this version of sluice");
    int flags = 0;
    if (allows(granted, access::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
    if (allows(granted, access::remote_write)) flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    if (allows(granted, access::remote_atomic) && impl_->quirks.atomics)
        flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    // A program may poll for what a peer writes.
    const bool may_relax = (flags & IBV_ACCESS_LOCAL_WRITE) == 0;
    return impl_->register_memory(memory.data(), memory.size_bytes(), flags, may_relax);
}

void device::deregister_shared(ibv_mr* mr) noexcept {
    SLUICE_EXPECTS(mr != nullptr && mr->pd == impl_->pd, "rdma device: memory of another device was deregistered");
    impl_->deregister(mr);
}

result<ibv_mr*> device::register_private(std::byte* memory, std::size_t bytes, bool peers_read) {
    SLUICE_EXPECTS(memory != nullptr && bytes != 0, "rdma device: no memory to register");
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (peers_read) access |= IBV_ACCESS_REMOTE_READ;
    if (peers_read && impl_->quirks.read_target_needs_remote_write) access |= IBV_ACCESS_REMOTE_WRITE;
    return impl_->register_memory(memory, bytes, access, false);
}

void device::deregister_private(ibv_mr* mr) noexcept {
    SLUICE_EXPECTS(mr != nullptr && mr->pd == impl_->pd, "rdma device: memory of another device was deregistered");
    impl_->deregister(mr);
}

} // namespace sluice::rdma
