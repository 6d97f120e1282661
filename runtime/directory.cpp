#include <sluice/directory.hpp>
#include <sluice/file_system.hpp>

#include "runtime/file_open.hpp"
#include "runtime/file_system.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace sluice {

namespace {

using detail::anchor;
using detail::path_operation;
using detail::unique_fd;

/// A name beneath a directory, taken apart: renames and removals act on the last part in the directory of the rest,
/// since only an open can be told to stay beneath [openat2(2)].
struct place {
    unique_fd parent; // -1: the directory itself
    int base = -1;
    std::string last;
};

task<result<place>> find(anchor base, std::string name, const char* what) {
    const auto refused = [&](const char* why) {
        return error(make_error_code(errc::invalid_argument), std::string(what) + " " + quoted(base, name) + ": " + why);
    };
    if (detail::has_nul(name)) co_return refused("a NUL in the name");
    std::string stem = name;
    while (stem.size() > 1 && stem.back() == '/') stem.pop_back();
    const std::size_t slash = stem.rfind('/');
    place found;
    found.base = base.fd;
    found.last = slash == std::string::npos ? stem : stem.substr(slash + 1);
    if (found.last.empty() || found.last == "." || found.last == "..")
        co_return refused("the name must end in that of an entry");
    if (slash != std::string::npos) {
        const std::string above = slash == 0 ? "/" : stem.substr(0, slash);
        auto parent = co_await detail::opening(base, above, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (!parent) {
            if (parent.error() == errc::invalid_argument) co_return refused("the name leads out of the directory");
            co_return error(parent.error().code(), std::string(what) + " " + quoted(base, name));
        }
        found.parent = std::move(*parent);
        found.base = found.parent.get();
    }
    co_return std::move(found);
}

task<result<void>> change(anchor base, std::string name, path_operation::kind kind, const char* what,
                          std::uint16_t permissions = 0) {
    auto at = co_await find(base, name, what);
    if (!at) co_return at.error();
    auto done = co_await path_operation(kind, at->base, at->last, AT_FDCWD, {}, permissions);
    if (!done) co_return error(done.error().code(), std::string(what) + " " + quoted(base, name));
    co_return result<void>();
}

task<result<void>> move_name(anchor base, std::string from, std::string to, path_operation::kind kind) {
    auto source = co_await find(base, from, "rename");
    if (!source) co_return source.error();
    auto target = co_await find(base, to, "rename to");
    if (!target) co_return target.error();
    auto done = co_await path_operation(kind, source->base, source->last, target->base, target->last);
    if (!done) co_return error(done.error().code(), "rename '" + from + "' to " + quoted(base, to));
    co_return result<void>();
}

task<result<file_status>> status_beneath(anchor base, std::string name) {
    auto opened = co_await detail::opening(base, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (!opened) {
        std::string_view why = opened.error().detail();
        if (why.starts_with("open ")) why.remove_prefix(5);
        co_return error(opened.error().code(), "stat " + std::string(why));
    }
    co_return co_await detail::status_operation(opened->get(), {}, true, base.directory + "/" + name);
}

} // namespace

directory::directory(int fd, std::string path) noexcept : fd_(fd), path_(std::move(path)) {}
directory::directory(directory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
directory& directory::operator=(directory&& other) noexcept {
    if (this != &other) {
        unique_fd(fd_).reset();
        fd_ = std::exchange(other.fd_, -1);
        path_ = std::move(other.path_);
    }
    return *this;
}
directory::~directory() { unique_fd(fd_).reset(); }

task<result<directory>> directory::open(std::string path) {
    const anchor base = detail::no_anchor();
    auto opened = co_await detail::opening(base, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!opened) co_return opened.error();
    co_return directory(opened->release(), std::move(path));
}

anchor directory::here() const {
    SLUICE_EXPECTS(fd_ >= 0, "directory: used when closed or moved from");
    return {fd_, true, path_};
}

task<result<file>> directory::open_file(std::string name, open_options options) {
    return detail::open_file(here(), std::move(name), options);
}

task<result<directory>> directory::open_directory(std::string name) {
    const anchor base = here();
    auto opened = co_await detail::opening(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!opened) co_return opened.error();
    co_return directory(opened->release(), path_ + "/" + name);
}

task<result<void>> directory::rename(std::string from, std::string to) {
    return move_name(here(), std::move(from), std::move(to), path_operation::kind::rename);
}
task<result<void>> directory::rename_new(std::string from, std::string to) {
    return move_name(here(), std::move(from), std::move(to), path_operation::kind::rename_new);
}
task<result<void>> directory::remove(std::string name) {
    return change(here(), std::move(name), path_operation::kind::remove, "remove");
}
task<result<void>> directory::remove_directory(std::string name) {
    return change(here(), std::move(name), path_operation::kind::remove_directory, "remove_directory");
}
task<result<void>> directory::make_directory(std::string name, std::uint16_t permissions) {
    return change(here(), std::move(name), path_operation::kind::make_directory, "make_directory", permissions);
}
task<result<file_status>> directory::stat(std::string name) { return status_beneath(here(), std::move(name)); }
task<result<std::vector<directory_entry>>> directory::list(std::string name) {
    return detail::list_directory_at(here(), std::move(name));
}
task<result<void>> directory::sync(std::string name) { return detail::sync_directory_at(here(), std::move(name)); }

} // namespace sluice
