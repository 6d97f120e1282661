#include "runtime/file_open.hpp"

#include "runtime/file_state.hpp"
#include "runtime/kernel_statx.hpp"

#include <cerrno>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace sluice::detail {

namespace {

int flags_of(const open_options& options) noexcept {
    creation create = options.create;
    int flags = O_CLOEXEC;
    switch (options.mode) {
    case open_mode::read:
        flags |= O_RDONLY;
        break;
    case open_mode::write:
        flags |= O_WRONLY;
        if (create == creation::automatic) create = creation::truncate;
        break;
    case open_mode::read_write:
        flags |= O_RDWR;
        if (create == creation::automatic) create = creation::if_missing;
        break;
    case open_mode::append:
        flags |= O_WRONLY | O_APPEND;
        if (create == creation::automatic) create = creation::if_missing;
        break;
    }
    switch (create) {
    case creation::automatic:
    case creation::existing: return flags;
    case creation::if_missing: return flags | O_CREAT;
    case creation::truncate: return flags | O_CREAT | O_TRUNC;
    case creation::exclusive: return flags | O_CREAT | O_EXCL;
    }
    return flags;
}

/// What direct I/O needs on this file, by what the kernel says or else by what every disk can do; zero when there is
/// none. Asks memory only: a server is not waited for.
direct_limits limits_of(int fd) noexcept {
    constexpr std::uint32_t safe_alignment = 4096; // the largest logical block in use
    constexpr long tmpfs_magic = 0x01021994;       // accepts O_DIRECT from Linux 6.6 on, and copies all the same
    constexpr long ramfs_magic = 0x858458f6;
    kernel_statx answer{};
    if (::statx(fd, "", statx_empty_path | statx_do_not_sync, statx_basic | statx_direct_io,
                reinterpret_cast<struct statx*>(&answer)) != 0)
        return {};
    if (!S_ISREG(answer.mode) && !S_ISBLK(answer.mode)) return {};
    if ((answer.mask & statx_direct_io) != 0) return {answer.direct_memory_alignment, answer.direct_offset_alignment};
    struct statfs system {};
    if (fstatfs(fd, &system) != 0 || system.f_type == tmpfs_magic || system.f_type == ramfs_magic) return {};
    return {safe_alignment, safe_alignment};
}

} // namespace

anchor no_anchor() { return {AT_FDCWD, false, {}}; }

std::string quoted(const anchor& base, const std::string& path) {
    std::string text = "'" + path + "'";
    if (base.beneath) text += " beneath '" + base.directory + "'";
    return text;
}

bool has_nul(const std::string& path) noexcept { return path.find('\0') != std::string::npos; }

opening::opening(const anchor& base, const std::string& path, int flags, std::uint16_t permissions) noexcept
    : operation(&opening::step), base_(&base), path_(&path), how_{} {
    request_.fd = base.fd;
    request_.address = reinterpret_cast<std::uintptr_t>(path.c_str());
    if (!base.beneath) {
        request_.code = opcode::openat;
        request_.length = permissions;
        request_.op_flags = static_cast<std::uint32_t>(flags);
        return;
    }
    how_.flags = static_cast<std::uint64_t>(flags);
    how_.mode = (flags & O_CREAT) != 0 ? permissions : 0; // openat2 refuses a mode that has no use
    how_.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    request_.code = opcode::openat2;
    request_.length = sizeof how_;
    request_.offset = reinterpret_cast<std::uintptr_t>(&how_);
}

bool opening::start(promise_base& promise) noexcept {
    if (has_nul(*path_)) {
        result_ = -EINVAL;
        return false;
    }
    return begin(promise);
}

bool opening::step(operation& op) noexcept {
    // EAGAIN also means that a path with ".." was renamed while it was resolved [openat2(2)].
    auto& self = static_cast<opening&>(op);
    return !should_retry(self.result_, self.attempts_) || self.restart();
}

result<unique_fd> opening::await_resume() {
    if (result_ >= 0) {
        taken_ = true;
        return unique_fd(result_);
    }
    std::string text = "open " + quoted(*base_, *path_);
    if (result_ == -EXDEV && base_->beneath)
        return error(make_error_code(errc::invalid_argument), text + ": the name leads out of the directory");
    return error::from_errno(-result_, text);
}

task<result<file>> open_file(anchor base, std::string path, open_options options) {
    const int flags = flags_of(options);
    auto opened = co_await opening(base, path, flags, options.permissions);
    if (!opened) co_return opened.error();
    executor& home = co_await this_executor();
    std::string shown = base.beneath ? base.directory + "/" + path : path;
    auto state = std::make_unique<file_state>(home, opened->release(), std::move(shown));
    if (options.mode == open_mode::read) state->transfers_until_registered = transfers_before_registering;
    // Appends go where the file ends, which nobody knows beforehand: alignment can't be had.
    if (options.direct && options.mode != open_mode::append) {
        if (const direct_limits limits = limits_of(state->descriptor.get()); limits.enabled()) {
            // The same file once more: by its descriptor, since the path may name another one by now. Opening it with
            // O_DIRECT in the first place would leave a new file behind where that is refused.
            const std::string self = "/proc/self/fd/" + std::to_string(state->descriptor.get());
            const anchor anywhere = no_anchor();
            auto direct = co_await opening(anywhere, self, (flags & (O_ACCMODE | O_CLOEXEC)) | O_DIRECT);
            if (direct) {
                state->buffered = std::move(state->descriptor);
                state->descriptor = std::move(*direct);
                state->direct = limits;
            } else if (direct.error() == condition::canceled && (flags & O_CREAT) == 0) {
                co_return direct.error();
            } // a file that may have been made here is handed over: its caller is the one who can remove it
        }
    }
    co_return file(std::move(state));
}

} // namespace sluice::detail
