#include <sluice/blocking.hpp>
#include <sluice/file_system.hpp>

#include "runtime/file_open.hpp"
#include "runtime/file_state.hpp"
#include "runtime/file_system.hpp"
#include "runtime/kernel_statx.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <utility>

namespace sluice {

namespace detail {

namespace {

constexpr unsigned mode_mask = 07777;

file_type type_of_mode(unsigned mode) noexcept {
    switch (mode & S_IFMT) {
    case S_IFREG: return file_type::regular;
    case S_IFDIR: return file_type::directory;
    case S_IFLNK: return file_type::symlink;
    case S_IFIFO: return file_type::fifo;
    case S_IFSOCK: return file_type::socket;
    case S_IFCHR: return file_type::character_device;
    case S_IFBLK: return file_type::block_device;
    default: return file_type::unknown;
    }
}

file_type type_of_entry(unsigned char type) noexcept { return type_of_mode(static_cast<unsigned>(DTTOIF(type))); }

const char* verb(path_operation::kind what) noexcept {
    switch (what) {
    case path_operation::kind::rename:
    case path_operation::kind::rename_new: return "rename '";
    case path_operation::kind::remove: return "remove '";
    case path_operation::kind::remove_directory: return "remove_directory '";
    case path_operation::kind::make_directory: return "make_directory '";
    }
    return "'";
}

} // namespace

path_operation::path_operation(kind what, int base, std::string first, int second_base, std::string second,
                               std::uint16_t permissions) noexcept
    : operation(&path_operation::step), what_(what), permissions_(permissions), second_base_(second_base),
      first_(std::move(first)), second_(std::move(second)) {
    request_.fd = base;
    switch (what) { // the fields are those of the io_uring_prep_* functions
    case kind::rename_new: request_.op_flags = RENAME_NOREPLACE; [[fallthrough]];
    case kind::rename:
        request_.code = opcode::renameat;
        request_.length = static_cast<std::uint32_t>(second_base);
        break;
    case kind::remove_directory: request_.op_flags = AT_REMOVEDIR; [[fallthrough]];
    case kind::remove: request_.code = opcode::unlinkat; break;
    case kind::make_directory:
        request_.code = opcode::mkdirat;
        request_.length = permissions & mode_mask;
        break;
    }
}

bool path_operation::start(promise_base& promise) noexcept {
    if (has_nul(first_) || has_nul(second_)) {
        result_ = -EINVAL;
        return false;
    }
    request_.address = reinterpret_cast<std::uintptr_t>(first_.c_str());
    if (request_.code == opcode::renameat) request_.offset = reinterpret_cast<std::uintptr_t>(second_.c_str());
    return begin(promise);
}

bool path_operation::step(operation& op) noexcept {
    auto& self = static_cast<path_operation&>(op);
    return !should_retry(self.result_, self.attempts_) || self.restart();
}

result<void> path_operation::await_resume() const {
    if (result_ >= 0) return {};
    std::string text = verb(what_) + first_ + "'";
    if (request_.code == opcode::renameat) text += " to '" + second_ + "'";
    return error::from_errno(-result_, text);
}

status_operation::status_operation(int base, std::string path, bool follow_symlinks, std::string shown) noexcept
    : operation(&status_operation::step), path_(std::move(path)), shown_(std::move(shown)) {
    static_assert(sizeof answer_ == sizeof(kernel_statx));
    request_.code = opcode::statx;
    request_.fd = base;
    request_.length = statx_basic;
    request_.op_flags = static_cast<std::uint32_t>((path_.empty() && base != AT_FDCWD ? statx_empty_path : 0) |
                                                   (follow_symlinks ? 0 : statx_no_follow));
}

bool status_operation::start(promise_base& promise) noexcept {
    if (has_nul(path_)) {
        result_ = -EINVAL;
        return false;
    }
    request_.address = reinterpret_cast<std::uintptr_t>(path_.c_str());
    request_.offset = reinterpret_cast<std::uintptr_t>(answer_.data());
    return begin(promise);
}

bool status_operation::step(operation& op) noexcept {
    auto& self = static_cast<status_operation&>(op);
    return !should_retry(self.result_, self.attempts_) || self.restart();
}

result<file_status> status_operation::await_resume() const {
    if (result_ < 0) return error::from_errno(-result_, "stat '" + shown_ + "'");
    kernel_statx answer;
    std::memcpy(&answer, answer_.data(), sizeof answer);
    file_status status;
    status.size_bytes = answer.size_bytes;
    status.allocated_bytes = answer.blocks * 512;
    status.type = type_of_mode(answer.mode);
    status.permissions = static_cast<std::uint16_t>(answer.mode & mode_mask);
    status.links = answer.links;
    status.user = answer.user;
    status.group = answer.group;
    status.device = makedev(answer.device_major, answer.device_minor);
    status.inode = answer.inode;
    status.modified = std::chrono::sys_time<std::chrono::nanoseconds>(
        std::chrono::seconds(answer.modified.seconds) + std::chrono::nanoseconds(answer.modified.nanoseconds));
    return status;
}

listing read_entries(unique_fd fd) {
    listing found;
    DIR* stream = fdopendir(fd.get());
    if (stream == nullptr) {
        found.errno_value = errno;
        return found;
    }
    static_cast<void>(fd.release()); // closed by closedir
    for (;;) {
        errno = 0;
        const dirent* entry = readdir(stream);
        if (entry == nullptr) break;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") found.entries.push_back({std::string(name), type_of_entry(entry->d_type)});
    }
    found.errno_value = errno;
    closedir(stream);
    return found;
}

task<result<void>> sync_directory_at(anchor base, std::string path) {
    auto opened = co_await opening(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!opened) co_return error(opened.error().code(), "sync directory: " + std::string(opened.error().detail()));
    file handle = file::adopt(opened->release(), path);
    auto synced = co_await handle.sync();
    if (!synced) co_return error(synced.error().code(), "sync directory " + quoted(base, path));
    co_return result<void>();
}

task<result<std::vector<directory_entry>>> list_directory_at(anchor base, std::string path) {
    auto opened = co_await opening(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!opened) co_return error(opened.error().code(), "list directory: " + std::string(opened.error().detail()));
    unique_fd fd = std::move(*opened);
    listing found = co_await run_blocking([&fd] { return read_entries(std::move(fd)); });
    if (found.errno_value != 0) co_return error::from_errno(found.errno_value, "list directory " + quoted(base, path));
    co_return std::move(found.entries);
}

} // namespace detail

using kind = detail::path_operation::kind;

detail::path_operation rename(std::string from, std::string to) {
    return {kind::rename, AT_FDCWD, std::move(from), AT_FDCWD, std::move(to)};
}
detail::path_operation rename_new(std::string from, std::string to) {
    return {kind::rename_new, AT_FDCWD, std::move(from), AT_FDCWD, std::move(to)};
}
detail::path_operation remove(std::string path) { return {kind::remove, AT_FDCWD, std::move(path)}; }
detail::path_operation remove_directory(std::string path) {
    return {kind::remove_directory, AT_FDCWD, std::move(path)};
}
detail::path_operation make_directory(std::string path, std::uint16_t permissions) {
    return {kind::make_directory, AT_FDCWD, std::move(path), AT_FDCWD, {}, permissions};
}
detail::status_operation stat(std::string path) {
    std::string shown = path;
    return {AT_FDCWD, std::move(path), true, std::move(shown)};
}
detail::status_operation stat_link(std::string path) {
    std::string shown = path;
    return {AT_FDCWD, std::move(path), false, std::move(shown)};
}
task<result<void>> sync_directory(std::string path) {
    return detail::sync_directory_at(detail::no_anchor(), std::move(path));
}
task<result<std::vector<directory_entry>>> list_directory(std::string path) {
    return detail::list_directory_at(detail::no_anchor(), std::move(path));
}

} // namespace sluice
