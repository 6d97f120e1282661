#pragma once

#include <sluice/contract.hpp>
#include <sluice/detail/promise.hpp>
#include <sluice/export.hpp>

#include <cerrno>
#include <coroutine>
#include <cstdint>

namespace sluice {

/// What an operation asks the kernel for; the names are io_uring's without their prefix [io_uring_enter(2)].
enum class opcode : std::uint8_t {
    nop,
    read,
    write,
    readv,
    writev,
    read_fixed,
    write_fixed,
    fsync,
    fallocate,
    openat,
    openat2,
    close,
    statx,
    renameat,
    unlinkat,
    mkdirat,
    accept,
    connect,
    send,
    recv,
    sendmsg,
    recvmsg,
    send_zc,
    sendmsg_zc,
    poll_add,
    count_ ///< how many there are; not an operation
};

/// The kernel request of an operation: the fields of a submission queue entry that sluice uses, with its names, so
/// that public headers need no liburing. Any engine (io_uring, epoll) can serve it.
struct request {
    opcode code = opcode::nop; ///< what is asked
    std::uint8_t sqe_flags = 0;     ///< IOSQE_* bits
    std::uint16_t ioprio = 0;       ///< recv, send and accept flags live here [io_uring_prep_recv(3)]
    std::int32_t fd = -1;           ///< descriptor, or slot of the file table with IOSQE_FIXED_FILE
    std::uint64_t offset = 0;       ///< file offset, or the second address (`addr2`)
    std::uint64_t address = 0;      ///< memory of the request; the kernel owns it until completion
    std::uint32_t length = 0;       ///< bytes or segments
    std::uint32_t op_flags = 0;     ///< rw_flags, msg_flags, open_flags, ...
    std::uint16_t buffer_index = 0; ///< slot of the registered buffer, for the fixed opcodes and zero-copy
    std::uint32_t file_index = 0;   ///< splice_fd_in / file_index
};

namespace detail {
[[noreturn]] SLUICE_EXPORT void operation_destroyed_in_flight(const operation& op) noexcept;
} // namespace detail

/// One request to the kernel, awaited in place: the awaiter is the operation, its address identifies the request, and
/// nothing is allocated. It is immovable and must stay alive until the kernel has let go; destroying it before is a
/// broken contract that stops the process with the operation's name.
///
/// Cancellation: when the task's stop token is stopped the kernel is asked to cancel; the coroutine resumes exactly
/// once, after the final completion, and success wins. Under a token already stopped no request is made.
/// Lifetime: the memory and descriptors in the request must outlive the co_await. Thread rule: executor-bound.
class SLUICE_EXPORT operation : public detail::ready_node, private detail::stop_callback_node {
public:
    operation(const operation&) = delete;
    operation& operator=(const operation&) = delete;

    bool await_ready() const noexcept { return false; }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept {
        return begin(h.promise());
    }

    /// What the kernel is, or will be, asked: for the engine, and for messages.
    const sluice::request& request() const noexcept { return request_; }
    /// From the co_await until its last completion: it must not be destroyed.
    bool in_flight() const noexcept { return state_ != state::idle && state_ != state::done; }

    // ---- for the engine ----
    /// How far it is: forwards only, but for a step that restarts it.
    enum class state : std::uint8_t {
        idle,      ///< not awaited yet
        queued,    ///< waits for the engine to take it
        withdrawn, ///< canceled while it waited: the engine completes it without asking the kernel
        submitted, ///< the kernel has it
        done,      ///< the result is there, the coroutine about to resume
    };
    ///@{
    /// The engine moves it from `queued` to `withdrawn` or `submitted`.
    state current_state() const noexcept { return state_; }
    void set_state(state s) noexcept { state_ = s; }
    ///@}
    /// A completion of the request arrived: ends the operation, unless its step goes on.
    void complete(std::int32_t result, std::uint32_t flags) noexcept {
        result_ = result;
        flags_ = flags;
        if (step_ != nullptr && !step_(*this)) return;
        state_ = state::done;
        if (linked) detail::stop_state::unlink(*this);
        executor_->make_ready(*this);
    }

protected:
    /// Decides at each completion whether the operation is over. Returns false after it started the request again or
    /// when more completions are to come. Runs inside the completion loop: it must not resume anything.
    using step_function = bool (*)(operation&) noexcept;

    /// Without a step the first completion ends it.
    explicit operation(step_function step = nullptr) noexcept : step_(step) {}
    ~operation() {
        if (in_flight()) [[unlikely]] detail::operation_destroyed_in_flight(*this);
    }

    /// Queues the request under the awaiting task; false when its token is stopped already: then nothing was asked, the
    /// result is -ECANCELED, and the task goes on at once.
    bool begin(detail::promise_base& promise) noexcept {
        SLUICE_EXPECTS(state_ == state::idle, "operation: awaited twice");
        const stop_token token = promise.token();
        if (token.stop_requested()) [[unlikely]] {
            result_ = -ECANCELED;
            state_ = state::done;
            return false;
        }
        handle = promise.handle;
        executor_ = &promise.home();
        if (token.stop_possible()) {
            invoke = &operation::on_stop;
            token.state()->link(*this);
        }
        state_ = state::queued;
        executor_->start(*this);
        return true;
    }
    /// Hands the (changed) request to the kernel again; for steps. Returns what the step returns.
    bool restart() noexcept {
        if (cancel_requested_) {
            result_ = -ECANCELED;
            return true;
        }
        state_ = state::queued;
        executor_->start(*this);
        return false;
    }

    sluice::request request_;       ///< filled in before begin(), changed by steps only
    std::int32_t result_ = 0;       ///< of the last completion: what the call returns, or -errno [io_uring_enter(2)]
    std::uint32_t flags_ = 0;       ///< IORING_CQE_F_* of the last completion [io_uring_enter(2)]
    bool cancel_requested_ = false; ///< a stop came in flight; restart() then ends it instead

private:
    static void on_stop(detail::stop_callback_node& node) noexcept {
        auto& self = static_cast<operation&>(node);
        self.cancel_requested_ = true;
        self.executor_->cancel(self);
    }

    state state_ = state::idle;
    step_function step_;
    executor* executor_ = nullptr;
};

/// `co_await nop()`: a round trip through the ring that does nothing; for measurements and tests.
class [[nodiscard]] nop : public operation {
public:
    nop() noexcept = default;
    /// Errors: `condition::canceled`.
    result<void> await_resume() const noexcept {
        if (result_ < 0) return error::from_errno(-result_);
        return {};
    }
};

/// `co_await readiness(fd, events)`: waits until a foreign descriptor is ready; `events` and the result are poll(2)'s
/// bits (POLLIN, POLLOUT, ...). Level-triggered at the time of the call. The descriptor should be non-blocking and be
/// drained to EAGAIN afterwards: a wake-up may be spurious.
///
/// Errors: `condition::canceled`, EBADF. Lifetime: `fd` stays open until it resumes.
class [[nodiscard]] readiness : public operation {
public:
    /// `events`: at least one bit; POLLERR and POLLHUP are reported unasked [poll(2)].
    readiness(int fd, std::uint32_t events) noexcept {
        request_.code = opcode::poll_add;
        request_.fd = fd;
        request_.op_flags = events;
    }
    result<std::uint32_t> await_resume() const noexcept {
        if (result_ < 0) return error::from_errno(-result_);
        return static_cast<std::uint32_t>(result_);
    }
};

} // namespace sluice
