#pragma once

#include <sluice/export.hpp>
#include <sluice/file_operation.hpp>
#include <sluice/file_status.hpp>
#include <sluice/region.hpp>
#include <sluice/result.hpp>
#include <sluice/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sluice {

/// What an open file may be used for. `append` writes at the end, wherever that is, and ignores the offset.
enum class open_mode : std::uint8_t { read, write, read_write, append };

/// Which files open() may find or make.
enum class creation : std::uint8_t {
    automatic, ///< read: `existing`; write: `truncate`; read_write and append: `if_missing`
    existing,  ///< must exist; what it holds is kept
    if_missing, ///< made when it doesn't exist; what it holds is kept
    truncate,  ///< made when it doesn't exist, emptied otherwise
    exclusive, ///< must not exist
};

/// How a file is opened. `{.mode = sluice::open_mode::write, .direct = true}`
struct open_options {
    open_mode mode = open_mode::read;      ///< decides what `creation::automatic` means
    creation create = creation::automatic; ///< whether the file may, or must, exist
    bool direct = false;              ///< past the page cache [open(2) O_DIRECT], where the file system can
    std::uint16_t permissions = 0644; ///< of a file that is made; the umask is taken off [umask(2)]
};

/// An open file. Offsets are explicit; there is no position. Reads and writes move all bytes or say why not: short
/// results, interruptions, the kernel's cap per call, and the alignment of direct I/O are dealt with inside.
///
/// Direct I/O: what is aligned goes past the page cache, the unaligned head and tail go through a second, buffered
/// descriptor; with memory that can't be aligned the whole operation does. Any offset, length and address is right,
/// and `stats()` says which bytes went which way. Where the file system has no direct I/O (tmpfs, for one) the file is
/// buffered, and `is_direct()` says so. Don't write to the same 4 KiB page from two operations at once.
///
/// Errors: what the kernel reports, with the operation and the path in the message; `condition::canceled` when a stop
/// was requested first. A canceled or failed write may have moved some of its bytes.
///
/// Lifetime: memory and paths must outlive the co_await, the file its operations (else a broken contract); the file
/// goes before its executor. Thread rule: executor-bound: used, closed and destroyed where it was opened.
class SLUICE_EXPORT file {
public:
    /// A closed file.
    file() noexcept;
    /// Opens `path`. Errors: `condition::not_found`, `already_exists`, `access_denied`, `invalid` (a NUL in the path),
    /// `out_of_resources` (descriptors), `no_space`, and others of [open(2)]. One that may have made the file before its
    /// stop was requested succeeds, buffered if need be: the caller is the one who can remove it.
    static task<result<file>> open(std::string path, open_options options = {});
    /// Takes over a descriptor that was opened elsewhere (memfd, pipe, device); buffered unless the descriptor has
    /// O_DIRECT set, in which case offsets, lengths and addresses must suit it. `name` is for messages. For the
    /// executor of this thread.
    static file adopt(int fd, std::string name);

    file(file&& other) noexcept;
    file& operator=(file&& other) noexcept;
    /// Closes it without a word about errors of late writes; close() tells.
    ~file();

    explicit operator bool() const noexcept { return state_ != nullptr; }

    ///@{
    /// `co_await f.read(offset, to)`: result<size_t>, the bytes read: all of `to`, or fewer only when the file ended.
    detail::file_read read(std::uint64_t offset, std::span<std::byte> to) noexcept {
        return detail::file_read(state(), offset, to);
    }
    detail::file_read read(std::uint64_t offset, region_view to) noexcept { return read(offset, to.bytes()); }
    ///@}
    ///@{
    /// `co_await f.read_exact(offset, to)`: result<void>; errc::end_of_file when the file ends before.
    detail::file_read_exact read_exact(std::uint64_t offset, std::span<std::byte> to) noexcept {
        return detail::file_read_exact(state(), offset, to);
    }
    detail::file_read_exact read_exact(std::uint64_t offset, region_view to) noexcept {
        return read_exact(offset, to.bytes());
    }
    ///@}
    ///@{
    /// `co_await f.write(offset, from)`: result<void>, all bytes or an error.
    detail::file_write write(std::uint64_t offset, std::span<const std::byte> from) noexcept {
        return detail::file_write(state(), offset, from);
    }
    detail::file_write write(std::uint64_t offset, const_region_view from) noexcept {
        return write(offset, from.bytes());
    }
    ///@}
    ///@{
    /// The same from and to many pieces of memory, one after another in the file. Any number of them: several
    /// requests are made, so other writers may come in between. `parts` must outlive the co_await.
    detail::file_read_vectored read_vectored(std::uint64_t offset, std::span<const std::span<std::byte>> parts) noexcept {
        return detail::file_read_vectored(state(), offset, parts);
    }
    detail::file_write_vectored write_vectored(std::uint64_t offset,
                                               std::span<const std::span<const std::byte>> parts) noexcept {
        return detail::file_write_vectored(state(), offset, parts);
    }
    ///@}

    /// Makes data and metadata durable [fsync(2)]. It covers writes that have completed, not those in flight. After an
    /// error the data may be lost even if a later sync succeeds: write it again to a new file.
    [[nodiscard]] detail::file_request sync() noexcept { return {state(), detail::file_request::kind::sync}; }
    /// The same without metadata that isn't needed to read the data back [fdatasync(2)].
    [[nodiscard]] detail::file_request data_sync() noexcept { return {state(), detail::file_request::kind::data_sync}; }
    /// Reserves disk blocks for a range, growing the file [fallocate(2)]. Errors: `condition::no_space`,
    /// `unsupported` (the file system can't), `invalid` (length 0).
    [[nodiscard]] detail::file_request allocate(std::uint64_t offset, std::uint64_t length) noexcept {
        return {state(), detail::file_request::kind::allocate, offset, length};
    }
    /// Cuts or grows (with a hole) the file to `size` bytes [ftruncate(2)]. Not cancellable.
    task<result<void>> truncate(std::uint64_t size);
    /// Of the open file, also when its name is gone or has been taken by another [statx(2)].
    task<result<file_status>> stat();

    /// `co_await f.close()`: result<void>; the file is closed whatever the result, which may be the error of an earlier
    /// write [close(2)]. A closed file closes well again. A stop request doesn't keep it from closing.
    [[nodiscard]] detail::file_close close();

    /// True when aligned operations go past the page cache.
    bool is_direct() const noexcept;
    /// Offsets and lengths that are multiples of this, in memory that is too, need no buffered part; 1 when buffered.
    std::uint32_t alignment_bytes() const noexcept;
    /// Since it was opened.
    file_stats stats() const noexcept;
    /// As it was opened, or the name given to adopt(); for messages.
    const std::string& path() const noexcept;
    /// The descriptor, still owned by the file; with O_DIRECT set when is_direct().
    int native_handle() const noexcept;

    /// For the library.
    explicit file(std::unique_ptr<detail::file_state> state) noexcept;

private:
    detail::file_state& state() const noexcept {
        SLUICE_EXPECTS(state_ != nullptr, "file: used when closed or moved from");
        return *state_;
    }
    std::unique_ptr<detail::file_state> state_;
};

} // namespace sluice
