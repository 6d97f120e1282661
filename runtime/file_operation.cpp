#include <sluice/file_operation.hpp>

#include "runtime/file_state.hpp"

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <linux/io_uring.h>
#include <string>
#include <unistd.h>

namespace sluice::detail {

file_request::file_request(file_state& file, kind what, std::uint64_t offset, std::uint64_t length) noexcept
    : operation(&file_request::step), file_(&file), what_(what) {
    request_.fd = file.descriptor.get();
    if (what == kind::allocate) {
        request_.code = opcode::fallocate; // its fields are those of io_uring_prep_fallocate(3)
        request_.offset = offset;
        request_.address = length;
        return;
    }
    request_.code = opcode::fsync;
    request_.op_flags = what == kind::data_sync ? IORING_FSYNC_DATASYNC : 0;
}

bool file_request::start(promise_base& promise) noexcept {
    SLUICE_EXPECTS(&promise.home() == &file_->home, "file: used on another executor than the one that opened it");
    const bool began = begin(promise);
    if (began) ++file_->in_flight;
    return began;
}

bool file_request::step(operation& op) noexcept {
    auto& self = static_cast<file_request&>(op);
    if (should_retry(self.result_, self.attempts_) && !self.restart()) return false;
    SLUICE_EXPECTS(self.file_->in_flight > 0, "file: more operations ended than began");
    --self.file_->in_flight;
    return true;
}

result<void> file_request::await_resume() const {
    if (result_ >= 0) return {};
    switch (what_) {
    case kind::sync: return error::from_errno(-result_, "sync '" + file_->path + "'");
    case kind::data_sync: return error::from_errno(-result_, "data_sync '" + file_->path + "'");
    case kind::allocate: break;
    }
    return error::from_errno(-result_, "allocate '" + file_->path + "' at offset " + std::to_string(request_.offset) +
                                           ", " + std::to_string(request_.address) + " bytes");
}

file_close::file_close(int fd, std::string path) noexcept : path_(std::move(path)) {
    request_.code = opcode::close;
    request_.fd = fd;
}

file_close::~file_close() {
    if (current_state() == state::idle && request_.fd >= 0) ::close(request_.fd); // never awaited
}

bool file_close::start(promise_base& promise) noexcept {
    if (request_.fd < 0) {
        set_state(state::done);
        return false;
    }
    return begin(promise);
}

result<void> file_close::await_resume() {
    // Canceled before it began: the descriptor is still open, and nobody else would close it.
    if (result_ == -ECANCELED) result_ = ::close(request_.fd) == 0 ? 0 : -errno;
    if (result_ >= 0 || result_ == -EINTR) return {}; // after EINTR Linux has closed it [close(2)]
    return error::from_errno(-result_, "close '" + path_ + "'");
}

} // namespace sluice::detail
