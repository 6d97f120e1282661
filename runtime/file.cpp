#include <sluice/blocking.hpp>
#include <sluice/file.hpp>
#include <sluice/file_system.hpp>

#include "runtime/engine.hpp"
#include "runtime/file_open.hpp"
#include "runtime/file_state.hpp"

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <unistd.h>
#include <utility>

namespace sluice {

namespace detail {

file_state::~file_state() { unique_fd(release()).reset(); }

int file_state::release() noexcept {
    SLUICE_EXPECTS(in_flight == 0, "file: closed while operations on it are in flight; await them first");
    SLUICE_EXPECTS(executor::current() == &home,
                   "file: closed or destroyed on another thread than its executor's, or after the executor");
    transfers_until_registered = 0;
    if (slot >= 0) home.ring().unregister_file(static_cast<std::uint32_t>(std::exchange(slot, -1)));
    buffered.reset();
    return descriptor.release();
}

void file_state::consider_registering() noexcept {
    if (--transfers_until_registered != 0) return;
    if (auto taken = home.ring().register_file(descriptor.get())) slot = *taken;
}

} // namespace detail

file::file() noexcept = default;
file::file(std::unique_ptr<detail::file_state> state) noexcept : state_(std::move(state)) {}
file::file(file&& other) noexcept = default;
file& file::operator=(file&& other) noexcept = default;
file::~file() = default;

task<result<file>> file::open(std::string path, open_options options) {
    return detail::open_file(detail::no_anchor(), std::move(path), options);
}

file file::adopt(int fd, std::string name) {
    SLUICE_EXPECTS(executor::current() != nullptr, "file::adopt: called on a thread without an executor");
    SLUICE_EXPECTS(fd >= 0, "file::adopt: not a descriptor");
    return file(std::make_unique<detail::file_state>(*executor::current(), fd, std::move(name)));
}

detail::file_close file::close() {
    if (state_ == nullptr) return {-1, {}};
    const int fd = state_->release();
    std::string path = std::move(state_->path);
    state_.reset();
    return {fd, std::move(path)};
}

task<result<void>> file::truncate(std::uint64_t size) {
    detail::file_state& self = state();
    int failure = EFBIG;
    if (size <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
        ++self.in_flight;
        failure = co_await run_blocking([fd = self.descriptor.get(), size] {
            int rc = 0;
            do rc = ftruncate(fd, static_cast<off_t>(size));
            while (rc != 0 && errno == EINTR);
            return rc == 0 ? 0 : errno;
        });
        --self.in_flight;
    }
    if (failure != 0)
        co_return error::from_errno(failure, "truncate '" + self.path + "' to " + std::to_string(size) + " bytes");
    co_return result<void>();
}

task<result<file_status>> file::stat() {
    detail::file_state& self = state();
    ++self.in_flight;
    auto status = co_await detail::status_operation(self.descriptor.get(), {}, true, self.path);
    --self.in_flight;
    co_return status;
}

bool file::is_direct() const noexcept { return state().direct.enabled(); }

std::uint32_t file::alignment_bytes() const noexcept {
    const detail::direct_limits& limits = state().direct;
    if (!limits.enabled()) return 1;
    return std::max(limits.memory, detail::granularity(limits, true));
}

file_stats file::stats() const noexcept { return state().stats; }
const std::string& file::path() const noexcept { return state().path; }
int file::native_handle() const noexcept { return state().descriptor.get(); }

} // namespace sluice
