#include "examples/object_store/object_directory.hpp"

#include "examples/object_store/key.hpp"
#include "examples/object_store/object_names.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>

#include <sys/file.h>
#include <unistd.h>

namespace store {

namespace {

using sluice::condition;

constexpr const char* private_folder = ".sluice-store";

sluice::error object_error(const sluice::error& why, const std::string& key) {
    if (why == std::errc::not_a_directory || why == std::errc::is_a_directory)
        return {why.code(), fmt::format("{}: other objects' keys end or go on at one of its parts", key)};
    if (why == condition::not_found) return {why.code(), fmt::format("no object {}", key)};
    if (why == condition::invalid) return {why.code(), fmt::format("{}: symbolic links that lead out are not followed", key)};
    return {why.code(), fmt::format("on the server, {}", key)};
}

/// The first bytes of an object's file, as many as a header has unless the file is shorter.
struct file_start {
    std::array<std::byte, object_header::encoded_bytes> bytes{};
    std::size_t read_bytes = 0;
    std::uint64_t file_bytes = 0;
    std::span<const std::byte> span() const noexcept { return std::span(bytes).first(read_bytes); }
};

sluice::task<sluice::result<file_start>> start_of(sluice::directory& root, std::string key) {
    auto status = co_await root.stat(key);
    if (!status) co_return object_error(status.error(), key);
    if (status->type != sluice::file_type::regular) co_return object_error(sluice::error::from_errno(ENOENT), key);
    auto file = co_await root.open_file(key);
    if (!file) co_return object_error(file.error(), key);
    file_start start;
    start.file_bytes = status->size_bytes;
    auto read = co_await file->read(0, std::span<std::byte>(start.bytes));
    if (!read) co_return object_error(read.error(), key);
    start.read_bytes = *read;
    co_return start;
}

sluice::task<sluice::result<object_header>> header_of(sluice::directory& root, std::string key) {
    auto start = co_await start_of(root, key);
    if (!start) co_return std::move(start).error();
    co_return object_header::decode(start->span(), start->file_bytes, key);
}

} // namespace

pending_object::~pending_object() {
    // Not through the ring: this also runs when everything is being stopped.
    if (!temporary_.empty()) unlinkat(directory_, temporary_.c_str(), 0);
}

sluice::task<sluice::result<void>> listing::open_folder(std::string folder) {
    const std::string name = folder.empty() ? "." : folder; // gcc 12 frees a conditional in co_await's operand twice
    auto entries = co_await root_->list(name);
    if (!entries) {
        if (entries.error() == condition::not_found && !folder.empty()) co_return sluice::result<void>(); // removed now
        co_return std::move(entries).error();
    }
    if (entries->empty() && folder.empty()) // there is always our own folder in it
        co_return sluice::error::from_errno(ENOENT, "the directory that the server serves was removed");
    for (sluice::directory_entry& each : *entries) {
        if (each.name.starts_with(reserved_prefix)) continue;
        std::string key = folder + each.name;
        if (each.type == sluice::file_type::unknown) {
            auto status = co_await root_->stat(key);
            if (status) each.type = status->type;
        }
        if (each.type == sluice::file_type::directory) {
            key += '/';
            if (key.starts_with(prefix_) || prefix_.starts_with(key)) folders_.push_back(std::move(key));
        } else if (each.type == sluice::file_type::regular && key.starts_with(prefix_)) {
            files_.push_back(std::move(key));
        }
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<std::vector<listed_object>>> listing::next() {
    constexpr std::size_t batch = 64;
    std::vector<listed_object> found;
    while (found.size() < batch) {
        if (files_.empty()) {
            if (folders_.empty()) break;
            std::string folder = std::move(folders_.back());
            folders_.pop_back();
            auto opened = co_await open_folder(std::move(folder));
            if (!opened) co_return std::move(opened).error();
            continue;
        }
        std::string key = std::move(files_.back());
        files_.pop_back();
        sluice::result<object_header> header = sluice::errc::canceled;
        if (auto allowed = check_key(key); allowed) header = co_await header_of(*root_, key);
        else header = std::move(allowed).error();
        if (header) found.push_back({std::move(key), *header});
        else if (header.error() == condition::canceled) co_return std::move(header).error();
        else if (header.error() != condition::not_found) { // else removed meanwhile
            ++unlisted_;
            if (!first_unlisted_) first_unlisted_ = std::move(header).error();
        }
    }
    co_return found;
}

sluice::result<void> listing::complete() const {
    if (!first_unlisted_) return {};
    return sluice::error(first_unlisted_->code(),
                         fmt::format("{} files can't be listed, the first: {}", unlisted_, first_unlisted_->detail()));
}

sluice::task<sluice::result<object_directory>> object_directory::open(std::string path) {
    const auto cannot = [&path](const sluice::error& why) {
        return sluice::error(why.code(), fmt::format("cannot serve the directory {}", path));
    };
    object_directory made;
    auto root = co_await sluice::directory::open(path);
    if (!root) co_return cannot(root.error());
    made.root_ = std::move(*root);
    constexpr std::uint16_t owner_only = 0700;
    auto folder = co_await made.root_.make_directory(private_folder, owner_only);
    if (!folder && folder.error() != condition::already_exists) co_return cannot(folder.error());
    auto temporaries = co_await made.root_.open_directory(private_folder);
    if (!temporaries) co_return cannot(temporaries.error());
    made.temporaries_ = std::move(*temporaries);
    if (flock(made.temporaries_.native_handle(), LOCK_EX | LOCK_NB) != 0)
        co_return sluice::error::from_errno(
            EBUSY, fmt::format("another sluice-store serves {}; stop it or use another directory", path));
    auto stale = co_await made.temporaries_.list();
    if (!stale) co_return cannot(stale.error());
    for (const sluice::directory_entry& each : *stale) {
        auto removed = co_await made.temporaries_.remove(each.name);
        if (!removed)
            co_return sluice::error(removed.error().code(),
                                    fmt::format("cannot serve the directory {}: cannot remove {}/{} from it; remove it by hand",
                                                path, private_folder, each.name));
    }
    co_return std::move(made);
}

sluice::task<sluice::result<std::uint64_t>> object_directory::file_bytes(std::string key) {
    auto status = co_await root_.stat(key);
    if (!status) co_return object_error(status.error(), key);
    if (status->type != sluice::file_type::regular) co_return object_error(sluice::error::from_errno(ENOENT), key);
    co_return status->size_bytes;
}

sluice::task<sluice::result<open_object>> object_directory::find(std::string key) {
    auto there = co_await file_bytes(key); // before it is opened: opening a FIFO would wait for its other end
    if (!there) co_return std::move(there).error();
    auto opened = co_await root_.open_file(key, {.direct = true});
    if (!opened) co_return object_error(opened.error(), key);
    auto size = co_await opened->stat(); // of what was opened: a put may have come in between
    if (!size) co_return object_error(size.error(), key);
    co_return open_object{std::move(*opened), size->size_bytes};
}

sluice::task<sluice::result<pending_object>> object_directory::begin(std::uint64_t size_bytes) {
    std::string name = fmt::format("{}/put-{}", private_folder, next_name_++);
    const std::uint64_t bytes = object_header::file_bytes(size_bytes);
    const auto cannot = [this, bytes](const sluice::error& why) {
        return sluice::error(why.code(), fmt::format("cannot make a file of {} bytes in {}", bytes, root_.path()));
    };
    const sluice::open_options how{
        .mode = sluice::open_mode::write, .create = sluice::creation::exclusive, .direct = true};
    auto opened = co_await root_.open_file(name, how);
    if (!opened) co_return cannot(opened.error());
    pending_object made(std::move(*opened), root_.native_handle(), std::move(name));
    auto room = co_await made.file.allocate(0, bytes);
    if (!room && room.error() != condition::unsupported) co_return cannot(room.error());
    co_return std::move(made);
}

sluice::task<sluice::result<void>> object_directory::place(std::string from, std::string key,
                                                           std::vector<std::string> in_the_way) {
    auto alone = co_await naming_->lock();
    if (!alone) co_return std::move(alone).error();
    co_await remove_tree(root_, std::move(in_the_way));
    auto named = co_await make_parents(root_, key);
    if (named) named = co_await root_.rename(std::move(from), key);
    if (!named) co_await prune_upwards(root_, parent_of(key));
    co_return named;
}

sluice::task<sluice::result<void>> object_directory::commit(pending_object& object, std::string key) {
    auto synced = co_await object.file.sync();
    if (!synced) co_return std::move(synced).error();
    auto named = co_await place(object.temporary_, key, {});
    if (!named && named.error() == std::errc::is_a_directory) { // perhaps left empty by a server that was killed
        auto in_the_way = co_await empty_tree(root_, key);
        if (in_the_way && !in_the_way->empty()) named = co_await place(object.temporary_, key, std::move(*in_the_way));
    }
    if (!named && named.error() == condition::not_found)
        co_return sluice::error(named.error().code(),
                                fmt::format("cannot store {}: the directory that the server serves was removed", key));
    if (!named) co_return object_error(named.error(), key);
    object.temporary_.clear();
    co_return co_await sync_upwards(root_, parent_of(key));
}

sluice::task<sluice::result<void>> object_directory::remove(std::string key) {
    auto start = co_await start_of(root_, key);
    if (!start) co_return std::move(start).error();
    if (!object_header::is_object(start->span())) // somebody else's file
        co_return sluice::error(sluice::errc::invalid_argument,
                                fmt::format("{} was not put by sluice-store; remove the file by other means", key));
    auto removed = co_await root_.remove(key);
    if (!removed && removed.error() == std::errc::is_a_directory) removed = sluice::error::from_errno(ENOENT);
    if (!removed) co_return object_error(removed.error(), key);
    auto alone = co_await naming_->lock();
    if (!alone) co_return std::move(alone).error();
    co_await prune_upwards(root_, parent_of(key));
    alone->unlock();
    co_return co_await sync_upwards(root_, parent_of(key));
}

sluice::task<sluice::result<object_header>> object_directory::stat(std::string key) { return header_of(root_, std::move(key)); }

} // namespace store
