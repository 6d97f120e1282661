#pragma once

#include <sluice/file.hpp>
#include <sluice/operation.hpp>

#include "runtime/unique_fd.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace sluice::detail {

/// A place that names start from, and what messages say about it.
struct anchor {
    int fd;
    bool beneath;          ///< names must not lead out of it
    std::string directory; ///< its path, for messages
};
anchor no_anchor();

/// `co_await opening(...)`: result<unique_fd>. What was opened is closed again unless somebody takes it, so a task
/// that is canceled or destroyed in between leaks nothing. `path` must outlive it.
class [[nodiscard]] opening final : public operation {
public:
    opening(const anchor& base, const std::string& path, int flags, std::uint16_t permissions = 0) noexcept;
    ~opening() {
        if (current_state() == state::done && result_ >= 0 && !taken_) unique_fd(result_).reset();
    }

    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }
    result<unique_fd> await_resume();

private:
    struct how { // struct open_how [openat2(2)]
        std::uint64_t flags, mode, resolve;
    };
    static bool step(operation& op) noexcept;
    bool start(promise_base& promise) noexcept;

    const anchor* base_;
    const std::string* path_;
    how how_;
    std::uint8_t attempts_ = 0;
    bool taken_ = false;
};

/// "'NAME' beneath 'DIR'"
std::string quoted(const anchor& base, const std::string& path);
/// True for what no system call can be asked for: a NUL inside.
bool has_nul(const std::string& path) noexcept;

task<result<file>> open_file(anchor base, std::string path, open_options options);

} // namespace sluice::detail
