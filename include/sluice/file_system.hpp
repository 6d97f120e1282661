#pragma once

#include <sluice/export.hpp>
#include <sluice/file_status.hpp>
#include <sluice/operation.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

namespace detail {

/// A request that names files: rename, remove, make_directory.
class SLUICE_EXPORT path_operation final : public operation {
public:
    enum class kind : std::uint8_t { rename, rename_new, remove, remove_directory, make_directory };
    /// `base` and `second_base` are directories' descriptors, or AT_FDCWD; `where` is for messages.
    path_operation(kind what, int base, std::string first, int second_base = -1, std::string second = {},
                   std::uint16_t permissions = 0) noexcept;

    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }
    result<void> await_resume() const;

private:
    static bool step(operation& op) noexcept;
    bool start(promise_base& promise) noexcept;

    kind what_;
    std::uint8_t attempts_ = 0;
    std::uint16_t permissions_;
    int second_base_;
    std::string first_;
    std::string second_;
};

/// statx of a path, or of a descriptor when the path is empty.
class SLUICE_EXPORT status_operation final : public operation {
public:
    status_operation(int base, std::string path, bool follow_symlinks, std::string shown) noexcept;

    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }
    result<file_status> await_resume() const;

private:
    static bool step(operation& op) noexcept;
    bool start(promise_base& promise) noexcept;

    std::string path_;
    std::string shown_;
    std::uint8_t attempts_ = 0;
    alignas(8) std::array<std::byte, 256> answer_; // struct statx [statx(2)]
};

} // namespace detail

// Errors of all of these: what the kernel reports, with the operation and the paths in the message;
// `condition::canceled` when a stop was requested first, in which case it may or may not have been done.
// Thread rule: executor-bound.

/// `co_await rename(from, to)`: result<void>. Replaces `to` in one step: others see the old file or the new one. To
/// survive a crash, sync the file before and its directory after [rename(2)].
[[nodiscard]] SLUICE_EXPORT detail::path_operation rename(std::string from, std::string to);
/// The same, but `condition::already_exists` when `to` exists.
[[nodiscard]] SLUICE_EXPORT detail::path_operation rename_new(std::string from, std::string to);
/// `co_await remove(path)`: a file or symbolic link [unlink(2)].
[[nodiscard]] SLUICE_EXPORT detail::path_operation remove(std::string path);
/// An empty directory; ENOTEMPTY otherwise [rmdir(2)].
[[nodiscard]] SLUICE_EXPORT detail::path_operation remove_directory(std::string path);
/// The umask is taken off the permissions. `condition::already_exists` when there is anything of that name.
[[nodiscard]] SLUICE_EXPORT detail::path_operation make_directory(std::string path, std::uint16_t permissions = 0755);
/// `co_await stat(path)`: result<file_status>; follows symbolic links.
[[nodiscard]] SLUICE_EXPORT detail::status_operation stat(std::string path);
/// The same of a symbolic link itself.
[[nodiscard]] SLUICE_EXPORT detail::status_operation stat_link(std::string path);
/// Makes what was created, renamed and removed in this directory durable [fsync(2)].
SLUICE_EXPORT task<result<void>> sync_directory(std::string path);
/// All names but "." and "..", in no order. Runs on a helper thread; not cancellable once it runs.
SLUICE_EXPORT task<result<std::vector<directory_entry>>> list_directory(std::string path);

} // namespace sluice
