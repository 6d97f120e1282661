#pragma once

#include <sluice/result.hpp>
#include <sluice/runtime.hpp>
#include <sluice/task.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace demo {

/// One file that becomes an object and a file again.
struct item {
    std::string source;
    std::string key;
    std::string fetched;
    std::uint64_t size_bytes = 0;
    std::string sha256{}; ///< of the source
};

/// Real files of this machine, `count` of them from /usr/include and /usr/lib, spread over what is found there first.
/// Errors: there are fewer; says how many.
sluice::result<std::vector<item>> choose_files(std::size_t count, const std::string& fetched_root);

/// A file of `size_bytes` that doesn't repeat itself, written past the page cache.
sluice::task<sluice::result<void>> make_big_file(sluice::runtime& runtime, std::string path, std::uint64_t size_bytes);

/// SHA-256 of each file, in hexadecimal, by sha256sum(1). Errors: it can't be run, or a file can't be read.
sluice::result<std::vector<std::string>> sha256_of(const std::vector<std::string>& files, const std::string& scratch);

/// Errors: `condition::no_space` when the file system of `directory` has less than `needed_bytes` free, with the remedy.
sluice::result<void> check_room(const std::string& directory, std::uint64_t needed_bytes);

} // namespace demo
