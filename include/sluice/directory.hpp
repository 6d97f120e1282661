#pragma once

#include <sluice/export.hpp>
#include <sluice/file.hpp>
#include <sluice/file_status.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

namespace detail {
struct anchor;
}

/// An open directory below which names are resolved, and never outside: a name that is absolute, climbs out with ".."
/// or meets a symbolic link that leads out fails with `condition::invalid`, whatever others do to the tree meanwhile
/// [openat2(2) RESOLVE_BENEATH]. So names from strangers can be used as they are.
///
/// Errors: as file.hpp and file_system.hpp; messages say "'NAME' beneath 'PATH'". Lifetime: must outlive the tasks made
/// from it; files opened through it live on their own. Thread rule: executor-bound.
class SLUICE_EXPORT directory {
public:
    /// `path` itself may be anything that leads to a directory. Errors: `condition::not_found`, `invalid` (not a
    /// directory), `access_denied`.
    static task<result<directory>> open(std::string path);
    directory() noexcept = default;
    directory(directory&& other) noexcept;
    directory& operator=(directory&& other) noexcept;
    ~directory();

    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// As it was opened, for messages: not followed when somebody renames the directory.
    const std::string& path() const noexcept { return path_; }
    /// The descriptor, still owned by the directory; -1 when there is none.
    int native_handle() const noexcept { return fd_; }

    ///@{
    /// Follow symbolic links that stay beneath. What they open is independent of this object.
    task<result<file>> open_file(std::string name, open_options options = {});
    task<result<directory>> open_directory(std::string name);
    ///@}
    ///@{
    /// Like their namesakes in file_system.hpp; the last part of a name is never followed if it is a symbolic link.
    task<result<void>> rename(std::string from, std::string to);
    task<result<void>> rename_new(std::string from, std::string to);
    task<result<void>> remove(std::string name);
    task<result<void>> remove_directory(std::string name);
    task<result<void>> make_directory(std::string name, std::uint16_t permissions = 0755);
    task<result<file_status>> stat(std::string name);
    ///@}
    /// The names in a directory beneath, "." for this one.
    task<result<std::vector<directory_entry>>> list(std::string name = ".");
    /// Makes what was created, renamed and removed directly in the directory `name` durable.
    task<result<void>> sync(std::string name = ".");

private:
    detail::anchor here() const;
    directory(int fd, std::string path) noexcept;
    int fd_ = -1;
    std::string path_;
};

} // namespace sluice
