#pragma once

#include "examples/object_store/object_header.hpp"

#include <sluice/directory.hpp>
#include <sluice/file.hpp>
#include <sluice/mutex.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace store {

/// An object that is being put: a temporary file, which goes away unless object_directory::commit gave it its name.
class pending_object {
public:
    pending_object(sluice::file opened, int directory, std::string temporary) noexcept
        : file(std::move(opened)), directory_(directory), temporary_(std::move(temporary)) {}
    pending_object(pending_object&& other) noexcept
        : file(std::move(other.file)), directory_(other.directory_),
          temporary_(std::exchange(other.temporary_, {})) {}
    pending_object& operator=(pending_object&&) = delete;
    ~pending_object();

    sluice::file file;

private:
    friend class object_directory;
    int directory_;
    std::string temporary_; ///< beneath the directory; empty once it has its name
};

/// An object that is being read.
struct open_object {
    sluice::file file;
    std::uint64_t file_bytes = 0;
};

struct listed_object {
    std::string key;
    object_header header;
};

/// A walk over the objects of a directory, some at a time. Lifetime: the directory outlives it.
class listing {
public:
    listing(sluice::directory& root, std::string prefix)
        : root_(&root), prefix_(std::move(prefix)), folders_(1, std::string()) {}
    /// The next objects, in no order; none at the end. What is removed meanwhile, directories and special files are left
    /// out; a file that can't be read or is no object is too, and complete() tells.
    sluice::task<sluice::result<std::vector<listed_object>>> next();
    /// Errors: that of the first file that was left out, and how many there are.
    sluice::result<void> complete() const;

private:
    sluice::task<sluice::result<void>> open_folder(std::string folder);

    sluice::directory* root_;
    std::string prefix_;
    std::vector<std::string> folders_; ///< still to be looked at, each with a slash at its end
    std::vector<std::string> files_;   ///< of the last one
    std::optional<sluice::error> first_unlisted_;
    std::uint64_t unlisted_ = 0;
};

/// The directory of a server: one file per object, named by its key. What is being written lies in `.sluice-store/` in
/// it, so that an object is its old or its new self at any moment. Names can't lead out of it, by whatever symbolic
/// link [openat2(2) RESOLVE_BENEATH].
///
/// Keys must have passed check_key. Lifetime: outlives the tasks made from it and the pending objects. Thread rule:
/// executor-bound.
class object_directory {
public:
    /// Takes the directory for this process alone, and removes what a killed server left half-written. Errors:
    /// `condition::not_found`, `access_denied`, `busy` (another server has it), each with the path.
    static sluice::task<sluice::result<object_directory>> open(std::string path);

    /// Size of an object's file, which takes no descriptor to learn.
    sluice::task<sluice::result<std::uint64_t>> file_bytes(std::string key);
    sluice::task<sluice::result<open_object>> find(std::string key);
    /// A temporary file with room for an object of `size_bytes` reserved. Errors: `condition::no_space`.
    sluice::task<sluice::result<pending_object>> begin(std::uint64_t size_bytes);
    /// Syncs the file, gives it its name, syncs the directories. Empty directories in its place make way.
    sluice::task<sluice::result<void>> commit(pending_object& object, std::string key);
    /// Errors: `condition::not_found`, `condition::invalid` for a file that is no object. A damaged object can be removed.
    sluice::task<sluice::result<void>> remove(std::string key);
    /// The header of an object.
    sluice::task<sluice::result<object_header>> stat(std::string key);
    /// Objects whose key starts with `prefix`.
    listing list(std::string prefix) { return {root_, std::move(prefix)}; }

private:
    /// Renames `from`, with the folders that `key` needs, after removing empty ones that are in its way.
    sluice::task<sluice::result<void>> place(std::string from, std::string key, std::vector<std::string> in_the_way);

    sluice::directory root_;
    sluice::directory temporaries_; ///< locked
    /// Held while folders are made for an object until it lies in them, and while empty ones are removed.
    std::unique_ptr<sluice::mutex> naming_ = std::make_unique<sluice::mutex>();
    std::uint64_t next_name_ = 0;
};

} // namespace store
