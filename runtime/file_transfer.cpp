#include <sluice/file_operation.hpp>

#include "runtime/buffer_table.hpp"
#include "runtime/file_state.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <linux/io_uring.h>
#include <string>
#include <sys/uio.h>

namespace sluice::detail {

namespace {

constexpr auto sqe_fixed_file = static_cast<std::uint8_t>(IOSQE_FIXED_FILE);
constexpr auto sqe_async = static_cast<std::uint8_t>(IOSQE_ASYNC);

constexpr bool leaves_offset_range(std::uint64_t offset, std::size_t length) noexcept {
    constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()); // off_t
    return offset > largest || length > largest - offset;
}

std::size_t total_of(const auto& parts) noexcept {
    std::size_t sum = 0;
    for (const auto& part : parts) sum += part.size();
    return sum;
}

} // namespace

file_transfer::file_transfer(file_state& file, direction way, std::uint64_t offset, std::size_t length,
                             prepare_function prepare) noexcept
    : operation(&file_transfer::step), file_(&file), offset_(offset), length_(length), prepare_(prepare), way_(way) {
    request_.code = way == direction::read ? opcode::read : opcode::write; // until the first piece is prepared
    request_.fd = file.descriptor.get();
}

bool file_transfer::start(promise_base& promise) noexcept {
    SLUICE_EXPECTS(&promise.home() == &file_->home, "file: used on another executor than the one that opened it");
    if (leaves_offset_range(offset_, length_)) [[unlikely]] {
        result_ = -EOVERFLOW;
    } else if (length_ != 0) [[likely]] {
        prepare_(*this);
        if (begin(promise)) {
            ++file_->in_flight;
            return true;
        }
    } else if (promise.token().stop_requested()) {
        result_ = -ECANCELED;
    }
    file_counters& counters = way_ == direction::read ? file_->stats.read : file_->stats.write;
    ++(result_ < 0 ? counters.failures : counters.operations);
    return false;
}

bool file_transfer::step(operation& op) noexcept {
    auto& self = static_cast<file_transfer&>(op);
    if (!self.is_over()) {
        self.prepare_(self);
        if (!self.restart()) return false;
    }
    self.finish();
    return true;
}

bool file_transfer::is_over() noexcept {
    if (result_ > 0) [[likely]] {
        SLUICE_EXPECTS(static_cast<std::size_t>(result_) <= length_ - done_, "file: the kernel moved more than it was asked");
        file_counters& counters = way_ == direction::read ? file_->stats.read : file_->stats.write;
        const path way = piece_is_direct_ ? path::file_direct : path::file_buffered;
        counters.bytes_by_path[static_cast<std::size_t>(way)] += static_cast<std::uint64_t>(result_);
        done_ += static_cast<std::size_t>(result_);
        attempts_ = 0;
        return done_ == length_;
    }
    if (result_ == 0) {
        // The end, for a read: short results before it are no proof. A write that moves nothing would go on for ever.
        if (way_ == direction::write) result_ = -EIO;
        return true;
    }
    return !should_retry(result_, attempts_);
}

void file_transfer::finish() noexcept {
    SLUICE_EXPECTS(file_->in_flight > 0, "file: more operations ended than began");
    --file_->in_flight;
    file_counters& counters = way_ == direction::read ? file_->stats.read : file_->stats.write;
    ++(result_ < 0 ? counters.failures : counters.operations);
    if (file_->transfers_until_registered != 0) file_->consider_registering();
}

void file_transfer::use_descriptor(bool direct) noexcept {
    piece_is_direct_ = direct;
    // After EAGAIN a worker thread waits instead of refusing: XFS and multipath answer so [io_uring_enter(2)].
    request_.sqe_flags = attempts_ != 0 ? sqe_async : std::uint8_t{0};
    if (file_->direct.enabled() && !direct) {
        request_.fd = file_->buffered.get();
    } else if (file_->slot >= 0) {
        request_.fd = static_cast<std::int32_t>(file_->slot);
        request_.sqe_flags |= sqe_fixed_file;
    } else {
        request_.fd = file_->descriptor.get();
    }
}

error file_transfer::failure(error cause) const {
    std::string text = (way_ == direction::read ? "read '" : "write '") + file_->path + "' at offset " +
                       std::to_string(offset_) + ", " + std::to_string(length_) + " bytes";
    if (done_ != 0) text += ", " + std::to_string(done_) + " done";
    return {cause.code(), text};
}

result<std::size_t> file_transfer::count() const {
    if (failed()) [[unlikely]] return failure(error::from_errno(-result_));
    return done_;
}

result<void> file_transfer::all() const {
    if (failed()) [[unlikely]] return failure(error::from_errno(-result_));
    if (done_ != length_) [[unlikely]] return failure(errc::end_of_file);
    return {};
}

void contiguous_transfer::prepare_piece(file_transfer& base) noexcept {
    auto& self = static_cast<contiguous_transfer&>(base);
    const bool writes = self.way_ == direction::write;
    const std::byte* from = self.memory_ + self.done_;
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    const std::uint64_t position = self.offset_ + self.done_;
    const piece next = first_piece(self.file_->direct, writes, position, address, self.length_ - self.done_);
    self.use_descriptor(next.direct);
    if (const auto slot = self.file_->home.buffers().find(from, next.length)) {
        self.request_.code = writes ? opcode::write_fixed : opcode::read_fixed;
        self.request_.buffer_index = *slot;
        ++self.file_->stats.fixed_operations;
    } else {
        self.request_.code = writes ? opcode::write : opcode::read;
        self.request_.buffer_index = 0;
    }
    self.request_.offset = position;
    self.request_.address = address;
    self.request_.length = static_cast<std::uint32_t>(next.length);
}

vectored_transfer::vectored_transfer(file_state& file, std::uint64_t offset,
                                     std::span<const std::span<std::byte>> parts) noexcept
    : file_transfer(file, direction::read, offset, total_of(parts), &vectored_transfer::prepare_piece),
      parts_(parts.data()), parts_count_(parts.size()) {}

vectored_transfer::vectored_transfer(file_state& file, std::uint64_t offset,
                                     std::span<const std::span<const std::byte>> parts) noexcept
    : file_transfer(file, direction::write, offset, total_of(parts), &vectored_transfer::prepare_piece),
      parts_(parts.data()), parts_count_(parts.size()) {}

vectored_transfer::segment vectored_transfer::part(std::size_t index) const noexcept {
    if (way_ == direction::read) {
        const auto& read_into = static_cast<const std::span<std::byte>*>(parts_)[index];
        return {read_into.data(), read_into.size()};
    }
    const auto& write_from = static_cast<const std::span<const std::byte>*>(parts_)[index];
    return {write_from.data(), write_from.size()};
}

void vectored_transfer::skip_done() noexcept {
    while (index_ < parts_count_ && before_ + part(index_).size <= done_) before_ += part(index_++).size;
}

/// Collects segments for one request: as many as the window holds and as all go the same way.
void vectored_transfer::prepare_piece(file_transfer& base) noexcept {
    auto& self = static_cast<vectored_transfer&>(base);
    static_assert(sizeof(segment) == sizeof(iovec) && offsetof(segment, size) == offsetof(iovec, iov_len));
    self.skip_done();
    const direct_limits& limits = self.file_->direct;
    const bool writes = self.way_ == direction::write;
    const std::uint64_t start = self.offset_ + self.done_;
    std::size_t inside = self.done_ - self.before_; // of the first segment: done already
    std::size_t total = 0;
    std::size_t count = 0;
    bool direct = false;
    for (std::size_t i = self.index_; i < self.parts_count_ && count < window; ++i, inside = 0) {
        const segment whole = self.part(i);
        const std::byte* from = whole.data + inside;
        const std::size_t left = whole.size - inside;
        if (left == 0) continue;
        const piece next = first_piece(limits, writes, start + total, reinterpret_cast<std::uintptr_t>(from), left);
        if (count == 0) direct = next.direct;
        if (next.direct != direct) break;
        const std::size_t room = (direct ? kernel_cap_bytes / limits.offset * limits.offset : kernel_cap_bytes) - total;
        std::size_t taken = std::min(next.length, room);
        if (direct) taken -= taken % granularity(limits, writes);
        if (taken == 0) break;
        self.segments_[count++] = {from, taken};
        total += taken;
        if (taken != left) break;
    }
    SLUICE_EXPECTS(count > 0, "file: a vectored transfer with nothing left to move");
    self.use_descriptor(direct);
    self.request_.code = writes ? opcode::writev : opcode::readv;
    self.request_.offset = start;
    self.request_.address = reinterpret_cast<std::uintptr_t>(self.segments_.data());
    self.request_.length = static_cast<std::uint32_t>(count);
}

} // namespace sluice::detail
