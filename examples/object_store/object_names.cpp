#include "examples/object_store/object_names.hpp"

#include <sluice/file_status.hpp>

#include <cstddef>
#include <system_error>
#include <utility>

namespace store {

using sluice::condition;

std::string parent_of(const std::string& key) {
    const std::size_t slash = key.rfind('/');
    return slash == key.npos ? "." : key.substr(0, slash);
}

sluice::task<sluice::result<void>> make_parents(sluice::directory& root, std::string key) {
    for (std::size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) {
        auto made = co_await root.make_directory(key.substr(0, slash));
        if (!made && made.error() != condition::already_exists) co_return made;
    }
    co_return sluice::result<void>();
}

sluice::task<void> prune_upwards(sluice::directory& root, std::string folder) {
    for (; folder != "."; folder = parent_of(folder)) {
        auto gone = co_await root.remove_directory(folder);
        if (!gone && gone.error() != condition::not_found) co_return;
    }
}

sluice::task<sluice::result<void>> sync_upwards(sluice::directory& root, std::string folder) {
    for (;; folder = parent_of(folder)) {
        auto synced = co_await root.sync(folder);
        // Removed after it had become empty, and its name may be an object's by now.
        const bool is_gone = !synced && folder != "." &&
                             (synced.error() == condition::not_found || synced.error() == std::errc::not_a_directory);
        if (!synced && !is_gone) co_return synced;
        if (folder == ".") co_return sluice::result<void>();
    }
}

sluice::task<sluice::result<std::vector<std::string>>> empty_tree(sluice::directory& root, std::string folder) {
    std::vector<std::string> found(1, std::move(folder));
    for (std::size_t next = 0; next < found.size(); ++next) {
        const std::string inside = found[next] + "/";
        auto entries = co_await root.list(found[next]);
        if (!entries) co_return std::move(entries).error();
        for (sluice::directory_entry& each : *entries) {
            std::string name = inside + each.name;
            if (each.type == sluice::file_type::unknown) {
                auto status = co_await root.stat(name);
                if (status) each.type = status->type;
            }
            if (each.type != sluice::file_type::directory) co_return std::vector<std::string>();
            found.push_back(std::move(name));
        }
    }
    co_return found;
}

sluice::task<void> remove_tree(sluice::directory& root, std::vector<std::string> folders) {
    for (; !folders.empty(); folders.pop_back()) (void)co_await root.remove_directory(folders.back());
}

} // namespace store
