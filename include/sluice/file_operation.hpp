#pragma once

#include <sluice/export.hpp>
#include <sluice/file_status.hpp>
#include <sluice/operation.hpp>
#include <sluice/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// The awaiters of `file`. Programs co_await what the functions of `file` return and need not name these types.

namespace sluice::detail {

struct file_state;

/// A read or write of a file: one request after another until all bytes have moved or something final happened.
class SLUICE_EXPORT file_transfer : public operation {
public:
    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }

protected:
    enum class direction : std::uint8_t { read, write };
    using prepare_function = void (*)(file_transfer&) noexcept;

    file_transfer(file_state& file, direction way, std::uint64_t offset, std::size_t length,
                  prepare_function prepare) noexcept;

    bool start(promise_base& promise) noexcept;
    bool failed() const noexcept { return result_ < 0; }
    /// All bytes or fewer at the end of the file; an error names the operation and the file.
    result<std::size_t> count() const;
    result<void> all() const;
    void use_descriptor(bool direct) noexcept;

    file_state* file_;
    std::uint64_t offset_;
    std::size_t length_;
    std::size_t done_ = 0;
    prepare_function prepare_;
    direction way_;
    bool piece_is_direct_ = false;
    std::uint8_t attempts_ = 0; // since bytes last moved

private:
    static bool step(operation& op) noexcept;
    bool is_over() noexcept;
    void finish() noexcept;
    error failure(error cause) const;
};

/// Of one piece of memory.
class SLUICE_EXPORT contiguous_transfer : public file_transfer {
protected:
    contiguous_transfer(file_state& file, direction way, std::uint64_t offset, const std::byte* memory,
                        std::size_t length) noexcept
        : file_transfer(file, way, offset, length, &contiguous_transfer::prepare_piece), memory_(memory) {}

private:
    static void prepare_piece(file_transfer& base) noexcept;
    const std::byte* memory_;
};

/// Of many; the kernel gets a window of them at a time, so there may be more than IOV_MAX.
class SLUICE_EXPORT vectored_transfer : public file_transfer {
protected:
    vectored_transfer(file_state& file, std::uint64_t offset, std::span<const std::span<std::byte>> parts) noexcept;
    vectored_transfer(file_state& file, std::uint64_t offset, std::span<const std::span<const std::byte>> parts) noexcept;

private:
    struct segment { // the layout of iovec [readv(2)]
        const std::byte* data;
        std::size_t size;
    };
    static constexpr std::size_t window = 64;

    static void prepare_piece(file_transfer& base) noexcept;
    segment part(std::size_t index) const noexcept;
    void skip_done() noexcept;

    const void* parts_;
    std::size_t parts_count_;
    std::size_t index_ = 0;      // of the first part that is not all done
    std::size_t before_ = 0;     // bytes in the parts before it
    std::array<segment, window> segments_;
};

class [[nodiscard]] file_read final : public contiguous_transfer {
public:
    file_read(file_state& file, std::uint64_t offset, std::span<std::byte> to) noexcept
        : contiguous_transfer(file, direction::read, offset, to.data(), to.size()) {}
    result<std::size_t> await_resume() const { return count(); }
};

class [[nodiscard]] file_read_exact final : public contiguous_transfer {
public:
    file_read_exact(file_state& file, std::uint64_t offset, std::span<std::byte> to) noexcept
        : contiguous_transfer(file, direction::read, offset, to.data(), to.size()) {}
    result<void> await_resume() const { return all(); }
};

class [[nodiscard]] file_write final : public contiguous_transfer {
public:
    file_write(file_state& file, std::uint64_t offset, std::span<const std::byte> from) noexcept
        : contiguous_transfer(file, direction::write, offset, from.data(), from.size()) {}
    result<void> await_resume() const { return all(); }
};

class [[nodiscard]] file_read_vectored final : public vectored_transfer {
public:
    using vectored_transfer::vectored_transfer;
    file_read_vectored(file_state& file, std::uint64_t offset, std::span<const std::span<std::byte>> parts) noexcept
        : vectored_transfer(file, offset, parts) {}
    result<std::size_t> await_resume() const { return count(); }
};

class [[nodiscard]] file_write_vectored final : public vectored_transfer {
public:
    file_write_vectored(file_state& file, std::uint64_t offset,
                        std::span<const std::span<const std::byte>> parts) noexcept
        : vectored_transfer(file, offset, parts) {}
    result<void> await_resume() const { return all(); }
};

/// A request on an open file that moves no data: sync, allocate.
class SLUICE_EXPORT file_request final : public operation {
public:
    enum class kind : std::uint8_t { sync, data_sync, allocate };
    file_request(file_state& file, kind what, std::uint64_t offset = 0, std::uint64_t length = 0) noexcept;

    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }
    result<void> await_resume() const;

private:
    static bool step(operation& op) noexcept;
    bool start(promise_base& promise) noexcept;

    file_state* file_;
    kind what_;
    std::uint8_t attempts_ = 0;
};

/// The end of a descriptor. It is closed whatever happens, also when canceled or under a stopped token.
class SLUICE_EXPORT file_close final : public operation {
public:
    /// Takes over the descriptor; -1 for a file that is closed already.
    file_close(int fd, std::string path) noexcept;
    ~file_close();

    template <sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return start(h.promise());
    }
    result<void> await_resume();

private:
    bool start(promise_base& promise) noexcept;
    std::string path_;
};

} // namespace sluice::detail
