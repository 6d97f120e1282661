#include "examples/object_store/demo/workload.hpp"

#include "examples/object_store/key.hpp"
#include "examples/object_store/progress_bar.hpp"

#include <sluice/file.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace demo {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t file_bytes_max = 4 << 20; // keeps the disk use of the demo bounded

// A machine may have a million files, and a slow file system.
constexpr std::size_t entries_for_each_file = 5;

/// As many as are among the first `entries_max` entries.
std::vector<item> regular_files_below(const std::string& root, std::size_t entries_max) {
    std::vector<item> found;
    std::error_code code;
    for (fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, code), end;
         !code && at != end && entries_max > 0; at.increment(code), --entries_max) {
        std::error_code gone;
        if (at->is_symlink(gone) || !at->is_regular_file(gone)) continue;
        const std::uint64_t size = at->file_size(gone);
        const std::string path = at->path().string();
        std::string key = path.substr(1);
        if (gone || size > file_bytes_max || access(path.c_str(), R_OK) != 0 || !store::check_key(key)) continue;
        found.push_back({.source = path, .key = std::move(key), .fetched = {}, .size_bytes = size});
    }
    std::ranges::sort(found, {}, &item::source);
    return found;
}

/// `count` of `all`, at equal distances.
void spread(std::vector<item>& chosen, std::vector<item>& all, std::size_t count) {
    const std::size_t n = std::min(count, all.size());
    for (std::size_t i = 0; i < n; ++i) chosen.push_back(std::move(all[i * all.size() / n]));
}

/// SplitMix64: a sequence without a pattern that a disk or a checksum could profit from.
std::uint64_t next_random(std::uint64_t& state) noexcept {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

void fill(std::span<std::byte> memory, std::uint64_t& state) noexcept {
    for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = next_random(state);
        std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
    }
}

} // namespace

sluice::result<std::vector<item>> choose_files(std::size_t count, const std::string& fetched_root) {
    std::vector<item> headers = regular_files_below("/usr/include", entries_for_each_file * count);
    std::vector<item> libraries = regular_files_below("/usr/lib", entries_for_each_file * count);
    std::vector<item> chosen;
    spread(chosen, headers, count / 2);
    spread(chosen, libraries, count - chosen.size());
    if (chosen.size() < count)
        return sluice::error::from_errno(
            ENOENT, fmt::format("the first {} entries of /usr/include and of /usr/lib have {} suitable files, {} are "
                                "wanted; use --files {}",
                                entries_for_each_file * count, chosen.size(), count, chosen.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].fetched = fmt::format("{}/{}", fetched_root, i);
    return chosen;
}

sluice::task<sluice::result<void>> make_big_file(sluice::runtime& runtime, std::string path, std::uint64_t size_bytes) {
    constexpr std::size_t block_bytes = 4 << 20;
    auto file = co_await sluice::file::open(path, {.mode = sluice::open_mode::write, .direct = true});
    if (!file) co_return std::move(file).error();
    auto block = co_await runtime.pool().allocate(block_bytes);
    if (!block) co_return std::move(block).error();
    std::uint64_t state = static_cast<std::uint64_t>(getpid());
    for (std::uint64_t at = 0; at < size_bytes; at += block_bytes) {
        const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block_bytes, size_bytes - at));
        fill(block->first(n).bytes(), state);
        auto written = co_await file->write(at, block->first(n));
        if (!written) co_return std::move(written).error();
    }
    co_return co_await file->close();
}

sluice::result<std::vector<std::string>> sha256_of(const std::vector<std::string>& files, const std::string& scratch) {
    constexpr std::size_t digits = 64;
    const std::string list = scratch + "/names";
    const std::string sums = scratch + "/sums";
    {
        std::ofstream names(list, std::ios::binary | std::ios::trunc);
        for (const std::string& file : files) names << file << '\0';
        if (!names.flush()) return sluice::error::from_errno(ENOSPC, fmt::format("cannot write {}", list));
    }
    // The paths are the demo's own and need no quoting; -z leaves odd names in the output as they are.
    const int status = std::system(fmt::format("xargs -0 sha256sum -z -- <'{}' >'{}'", list, sums).c_str());
    if (status != 0) return sluice::error::from_errno(EIO, "sha256sum failed; see what it wrote above");
    std::ifstream in(sums, std::ios::binary);
    std::vector<std::string> found;
    for (std::string line; std::getline(in, line, '\0') && line.size() > digits;) found.push_back(line.substr(0, digits));
    if (found.size() != files.size())
        return sluice::error::from_errno(EIO, fmt::format("sha256sum named {} files instead of {}", found.size(), files.size()));
    return found;
}

sluice::result<void> check_room(const std::string& directory, std::uint64_t needed_bytes) {
    std::error_code code;
    const fs::space_info room = fs::space(directory, code);
    if (code) return sluice::error(code, directory);
    if (room.available >= needed_bytes) return {};
    return sluice::error::from_errno(
        ENOSPC, fmt::format("{} has {} free, {} are needed; use --directory, or --big with a smaller size", directory,
                            store::human_bytes(static_cast<double>(room.available)),
                            store::human_bytes(static_cast<double>(needed_bytes))));
}

} // namespace demo
