#pragma once

#include <sluice/file.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace store {

/// A file that comes into being whole or not at all: written beside its final name, renamed at the end, and removed
/// if the end doesn't come. One that replaces a file takes over its permissions, and its owner where it may; other names
/// of that file (hard links) keep what they have, and so its access control lists and attributes stay behind.
///
/// Thread rule: executor-bound.
class local_file {
public:
    /// For `size_bytes` at `path`, with the room reserved; `direct` goes past the page cache where that is possible.
    /// Errors: what stands at `path` is no regular file, `condition::no_space`, `access_denied`, each with the path.
    static sluice::task<sluice::result<local_file>> create(std::string path, std::uint64_t size_bytes, bool direct);
    local_file(local_file&& other) noexcept
        : file(std::move(other.file)), path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})),
          size_bytes_(other.size_bytes_) {}
    local_file& operator=(local_file&&) = delete;
    ~local_file();

    /// Cuts it to its size, closes it and gives it its name.
    sluice::task<sluice::result<void>> finish();

    sluice::file file;

private:
    local_file(std::string path, std::string temporary, std::uint64_t size_bytes)
        : path_(std::move(path)), temporary_(std::move(temporary)), size_bytes_(size_bytes) {}

    std::string path_;
    std::string temporary_; ///< empty once it has its name
    std::uint64_t size_bytes_;
};

} // namespace store
