#pragma once

#include <sluice/directory.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <string>
#include <vector>

namespace store {

// The folders that keys with slashes lie in: made when a put needs them, removed when they are empty. Names are
// relative to `root`, which must outlive the tasks.

/// The directory that an object's file lies in; "." at the top.
std::string parent_of(const std::string& key);

/// Makes the folders of `key` that don't exist yet; nothing is durable before sync_upwards.
sluice::task<sluice::result<void>> make_parents(sluice::directory& root, std::string key);

/// Removes `folder` and those that it lies in, as far as they are empty; some may be gone already.
sluice::task<void> prune_upwards(sluice::directory& root, std::string folder);

/// Makes the entries in `folder` durable, and its own entry and so on up to the top: whoever made or removed them may
/// not have done it yet. A folder that is gone counts, for where it was is synced too.
sluice::task<sluice::result<void>> sync_upwards(sluice::directory& root, std::string folder);

/// `folder` and the folders in it, innermost last; none when anything else lies in one of them.
sluice::task<sluice::result<std::vector<std::string>>> empty_tree(sluice::directory& root, std::string folder);

/// Removes what empty_tree found, as far as it is still empty.
sluice::task<void> remove_tree(sluice::directory& root, std::vector<std::string> folders);

} // namespace store
