#pragma once

#include <sluice/file_status.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include "runtime/file_open.hpp"
#include "runtime/unique_fd.hpp"

#include <string>
#include <vector>

namespace sluice::detail {

struct listing {
    int errno_value = 0;
    std::vector<directory_entry> entries;
};
/// Blocks.
listing read_entries(unique_fd fd);

task<result<void>> sync_directory_at(anchor base, std::string path);
task<result<std::vector<directory_entry>>> list_directory_at(anchor base, std::string path);

} // namespace sluice::detail
