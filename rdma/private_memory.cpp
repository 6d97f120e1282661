#include "rdma/private_memory.hpp"

#include <sluice/contract.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace sluice::rdma {

result<private_memory> private_memory::create(device& on, std::size_t bytes, bool peers_read) {
    SLUICE_EXPECTS(bytes > 0, "private memory: of no bytes");
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t size = (bytes + page - 1) / page * page;
    void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return error(make_error_code(errc::out_of_resources), "mmap of " + std::to_string(size) +
                                                                  " bytes for frames of " + on.name() + ": " +
                                                                  std::strerror(errno));
    private_memory made;
    made.on_ = &on;
    made.data_ = static_cast<std::byte*>(at);
    made.size_bytes_ = size;
    if (madvise(at, size, MADV_DONTFORK) != 0) return error::from_errno(errno, "madvise(MADV_DONTFORK)");
    auto mr = on.register_private(made.data_, size, peers_read);
    if (!mr) return mr.error();
    made.mr_ = *mr;
    return made;
}

void private_memory::reset() noexcept {
    if (mr_ != nullptr) on_->deregister_private(std::exchange(mr_, nullptr));
    if (data_ != nullptr) munmap(std::exchange(data_, nullptr), size_bytes_);
}

} // namespace sluice::rdma
