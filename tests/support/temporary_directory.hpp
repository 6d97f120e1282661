#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace sluice::testing {

/// A directory of its own that goes, with all in it, at the end of the test. `root` names the file system.
class temporary_directory {
public:
    explicit temporary_directory(std::string root = {}) {
        if (root.empty()) {
            const char* variable = std::getenv("TMPDIR");
            root = variable != nullptr ? variable : "/var/tmp"; // a disk, where /tmp may be a tmpfs
        }
        path_ = root + "/sluice-test-XXXXXX";
        if (mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp " + path_);
    }
    ~temporary_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_directory(const temporary_directory&) = delete;
    temporary_directory& operator=(const temporary_directory&) = delete;

    const std::string& path() const noexcept { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

/// Descriptors that this process has open.
inline std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
}

} // namespace sluice::testing
