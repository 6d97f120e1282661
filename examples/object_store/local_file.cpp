#include "examples/object_store/local_file.hpp"

#include <sluice/file_system.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

namespace store {

namespace {

/// Beside the file, so that the rename stays within one file system.
std::string temporary_for(const std::string& path) {
    static std::atomic<unsigned> next{0};
    const std::filesystem::path target(path);
    constexpr std::size_t kept_bytes = 128; // of the name, which may be as long as names can be
    const std::string name = target.filename().string().substr(0, kept_bytes);
    return (target.parent_path() / fmt::format(".{}.sluice-{}-{}", name, getpid(), next++)).string();
}

sluice::result<void> check_target(const std::string& path) {
    constexpr std::size_t name_bytes_max = 255; // NAME_MAX of every file system that matters [limits.h(0p)]
    if (const std::size_t bytes = std::filesystem::path(path).filename().string().size(); bytes > name_bytes_max)
        return sluice::error::from_errno(ENAMETOOLONG, fmt::format("cannot write a file whose name has {} bytes, at most {} are "
                                                                   "allowed; give a shorter one", bytes, name_bytes_max));
    std::error_code ignored;
    const auto there = std::filesystem::symlink_status(path, ignored);
    if (std::filesystem::is_directory(there))
        return sluice::error::from_errno(EISDIR, fmt::format("cannot write the file {}", path));
    if (std::filesystem::is_symlink(there)) // a rename would replace the link itself
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("cannot write {}: it is a symbolic link; name the file that it leads to", path));
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("cannot write {}: only regular files can be replaced", path));
    return {};
}

/// What stands at `path` hands on its permissions, and its owner and group as far as this process may give files away.
void take_over_permissions(int fd, const std::string& path) noexcept {
    struct stat before {};
    if (lstat(path.c_str(), &before) != 0) return;
    constexpr auto keep = static_cast<uid_t>(-1);
    const bool has_owner = fchown(fd, before.st_uid, before.st_gid) == 0;
    const bool has_group = has_owner || fchown(fd, keep, before.st_gid) == 0;
    mode_t mode = before.st_mode & 07777;
    // What was granted to one group, or by one owner, is not granted to or by another.
    if (!has_owner) mode &= 0777;
    if (!has_group) mode &= 0707;
    (void)fchmod(fd, mode); // a file system may have none
}

} // namespace

local_file::~local_file() {
    // Not through the ring: this also runs when everything is being stopped.
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

sluice::task<sluice::result<local_file>> local_file::create(std::string path, std::uint64_t size_bytes, bool direct) {
    if (auto allowed = check_target(path); !allowed) co_return std::move(allowed).error();
    std::string temporary = temporary_for(path);
    std::error_code ignored;
    constexpr std::uint16_t at_first = 0600; // for nobody else before it has the permissions of what it replaces
    sluice::open_options how{.mode = sluice::open_mode::write, .create = sluice::creation::exclusive, .direct = direct};
    if (std::filesystem::exists(path, ignored)) how.permissions = at_first;
    auto opened = co_await sluice::file::open(temporary, how);
    if (!opened) co_return sluice::error(opened.error().code(), fmt::format("cannot write {}", path));
    local_file made(std::move(path), std::move(temporary), size_bytes);
    made.file = std::move(*opened);
    if (size_bytes > 0) {
        auto room = co_await made.file.allocate(0, size_bytes);
        if (!room && room.error() != sluice::condition::unsupported)
            co_return sluice::error(room.error().code(),
                                    fmt::format("cannot make room for {} bytes at {}", size_bytes, made.path_));
    }
    co_return std::move(made);
}

sluice::task<sluice::result<void>> local_file::finish() {
    auto cut = co_await file.truncate(size_bytes_);
    if (!cut) co_return std::move(cut).error();
    take_over_permissions(file.native_handle(), path_);
    auto closed = co_await file.close();
    if (!closed) co_return std::move(closed).error();
    auto named = co_await sluice::rename(temporary_, path_);
    if (!named) co_return std::move(named).error();
    temporary_.clear();
    co_return sluice::result<void>();
}

} // namespace store
