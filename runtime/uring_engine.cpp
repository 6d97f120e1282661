#include "runtime/engine.hpp"
#include "runtime/executor_impl.hpp"
#include "runtime/unique_fd.hpp"
#include "runtime/uring_operations.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <vector>

namespace sluice::detail {

namespace {

// user_data is the address of the operation; these two are no addresses.
constexpr std::uint64_t wake_tag = 1;
constexpr std::uint64_t cancel_tag = 2;

// No executor has use for more operations at once; it keeps the doubling of a limit from running on.
constexpr unsigned in_flight_ceiling = 1U << 24;

struct flag_set {
    unsigned flags;
    const char* name;
};
// Best first; a kernel that doesn't know a flag answers EINVAL [io_uring_setup(2)].
constexpr std::array<flag_set, 3> ladder{{
    {IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
     "single issuer, deferred task work"},
    {IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, "cooperative task work"},
    {0, "plain"},
}};

error explain_setup(int errno_value) {
    switch (errno_value) {
    case EPERM:
    case EACCES:
        return error::from_errno(errno_value,
                                 "io_uring_setup: forbidden here, by a container's seccomp profile or by sysctl "
                                 "kernel.io_uring_disabled; allow the io_uring_* calls or set the sysctl to 0");
    case ENOSYS:
        return error({errno_value, std::generic_category()},
                     "io_uring_setup: this kernel (or its seccomp profile) has no io_uring; Linux 6.1 or newer is needed");
    case ENOMEM: {
        rlimit limit{};
        getrlimit(RLIMIT_MEMLOCK, &limit);
        return error::from_errno(errno_value, "io_uring_setup: not enough lockable memory, the limit is " +
                                                  std::to_string(limit.rlim_cur) +
                                                  " bytes; raise it (ulimit -l, LimitMEMLOCK=)");
    }
    case EMFILE:
    case ENFILE:
        return error::from_errno(errno_value, "io_uring_setup: no descriptor left; raise the limit (ulimit -n)");
    default: return error::from_errno(errno_value, "io_uring_setup");
    }
}

class uring_engine final : public engine {
public:
    uring_engine() = default;
    ~uring_engine() override;

    result<void> open(const executor_options& options);

    void cancel(operation& op) noexcept override;
    void turn() noexcept override;
    [[gnu::always_inline]] void
    turn_and_wait(std::optional<std::chrono::steady_clock::time_point> deadline) noexcept override;
    void drive(executor_impl& loop, executor& self, const bool* done) noexcept override;
    void wake() noexcept override;
    result<void> register_buffers(std::uint32_t first_slot, std::span<const iovec> buffers) override;
    void unregister_buffers(std::uint32_t first_slot, std::uint32_t count) noexcept override;
    result<std::uint32_t> register_file(int fd) override;
    void unregister_file(std::uint32_t slot) noexcept override;
    bool supports(opcode code) const noexcept override { return supported_[static_cast<std::size_t>(code)]; }
    engine_stats stats() const noexcept override {
        engine_stats s = stats_;
        s.in_flight = in_flight_;
        return s;
    }
    std::string description() const override;
    std::vector<engine_feature> features() const override;

private:
    io_uring_sqe* take_sqe() noexcept;
    [[gnu::always_inline]] void take_started() noexcept;
    [[gnu::always_inline]] ready_node* prepare(ready_node* node) noexcept;
    [[gnu::noinline]] void take_slowly() noexcept;
    void refill(ready_queue& from) noexcept;
    static void complete_withdrawn(ready_queue& from) noexcept;
    [[gnu::noinline]] void repair() noexcept;
    bool arm_wake() noexcept;
    bool prepare_cancel(std::uint64_t user_data) noexcept;
    [[gnu::always_inline]] void reap() noexcept;
    [[gnu::noinline]] void admit_more() noexcept;
    void submitted(int rc) noexcept;
    [[gnu::noinline]] void enter_failed(int rc) noexcept;
    bool kernel_has_work() const noexcept {
        return (std::atomic_ref<unsigned>(*ring_.sq.kflags).load(std::memory_order_relaxed) &
                (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
    }

    io_uring ring_{};
    bool open_ = false;
    bool has_buffer_table_ = false;

    // What is seldom the case, in one word, so that the usual turn checks only that.
    static constexpr unsigned unarmed = 1;       // the wake-up is to be armed
    static constexpr unsigned withdrawn = 2;     // an operation was canceled before the kernel had it
    static constexpr unsigned delayed = 4;       // delayed_ holds something
    static constexpr unsigned unsent_cancel = 8; // cancels_ holds something
    unsigned attention_ = unarmed;
    unsigned in_flight_ = 0;     // requests that the kernel holds and that will still post a completion
    unsigned in_flight_max_ = 0; // so that completions don't overflow the queue; see admit_more()
    unsigned requeue_failures_ = 0;
    const char* flags_name_ = "";
    bool ring_fd_registered_ = false;
    unique_fd wake_fd_;
    ready_queue delayed_; // operations that wait for a slot
    ready_queue cancels_; // operations whose cancel request waits for a slot
    std::vector<std::uint32_t> free_file_slots_;
    std::array<bool, static_cast<std::size_t>(opcode::count_)> supported_{};
    engine_stats stats_;
};

result<void> uring_engine::open(const executor_options& options) {
    const unsigned entries = std::bit_ceil(options.submission_entries);
    io_uring_params params{};
    int rc = -EINVAL;
    for (const flag_set& set : ladder) {
        params = {};
        params.flags = set.flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
        params.cq_entries = options.completion_entries != 0 ? options.completion_entries : entries * 4;
        rc = io_uring_queue_init_params(entries, &ring_, &params);
        flags_name_ = set.name;
        if (rc != -EINVAL) break;
    }
    if (rc < 0) return explain_setup(-rc);
    open_ = true;
    constexpr unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_SUBMIT_STABLE;
    if ((params.features & needed) != needed)
        return error(errc::unsupported, "io_uring: this kernel's ring is too old; Linux 6.1 or newer is needed");
    in_flight_max_ = params.cq_entries - 8; // room for the wake-up, and for cancel requests that fail

    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return error::from_errno(ENOMEM, "io_uring: probing the operations");
    for (std::size_t i = 0; i < supported_.size(); ++i)
        supported_[i] = io_uring_opcode_supported(probe, uring_operation(static_cast<opcode>(i))) != 0;
    io_uring_free_probe(probe);

    wake_fd_ = unique_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_fd_) return error::from_errno(errno, "eventfd");
    ring_fd_registered_ = io_uring_register_ring_fd(&ring_) == 1; // saves a look-up per call
    if (options.registered_files != 0) {
        rlimit limit{};
        getrlimit(RLIMIT_NOFILE, &limit);
        const auto slots = static_cast<unsigned>(std::min<rlim_t>(options.registered_files, limit.rlim_cur));
        if (io_uring_register_files_sparse(&ring_, slots) == 0)
            for (unsigned slot = slots; slot > 0; --slot) free_file_slots_.push_back(slot - 1);
    }
    if (!arm_wake()) return error(errc::out_of_resources, "io_uring: no slot for the wake-up");
    return {};
}

uring_engine::~uring_engine() {
    if (!open_) return;
    SLUICE_EXPECTS(in_flight_ == 0 && delayed_.empty() && (started_ == nullptr || started_->empty()),
                   "executor: destroyed while operations are in flight");
    // The wake-up poll refers only to the eventfd, which the kernel keeps; nothing of ours is touched after this.
    io_uring_queue_exit(&ring_);
}

io_uring_sqe* uring_engine::take_sqe() noexcept {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) [[unlikely]] {
        submitted(io_uring_submit(&ring_));
        sqe = io_uring_get_sqe(&ring_);
    }
    return sqe;
}

static_assert(offsetof(request, code) == offsetof(io_uring_sqe, opcode) &&
                  offsetof(request, sqe_flags) == offsetof(io_uring_sqe, flags) &&
                  offsetof(request, ioprio) == offsetof(io_uring_sqe, ioprio) &&
                  offsetof(request, fd) == offsetof(io_uring_sqe, fd) &&
                  offsetof(request, offset) == offsetof(io_uring_sqe, off) &&
                  offsetof(request, address) == offsetof(io_uring_sqe, addr) &&
                  offsetof(request, length) == offsetof(io_uring_sqe, len) &&
                  offsetof(request, op_flags) == offsetof(io_uring_sqe, rw_flags),
              "a request starts like a submission queue entry, so that the compiler can copy it in words");

void fill(io_uring_sqe& sqe, operation& op) noexcept {
    const request& r = op.request();
    sqe.opcode = uring_operation(r.code);
    sqe.flags = r.sqe_flags;
    sqe.ioprio = r.ioprio;
    sqe.fd = r.fd;
    sqe.off = r.offset;
    sqe.addr = r.address;
    sqe.len = r.length;
    sqe.rw_flags = static_cast<__kernel_rwf_t>(r.op_flags);
    sqe.user_data = reinterpret_cast<std::uint64_t>(&op);
    sqe.buf_index = r.buffer_index;
    sqe.personality = 0;
    sqe.file_index = r.file_index;
    sqe.addr3 = 0;
    sqe.__pad2[0] = 0;
    op.set_state(operation::state::submitted);
}

/// Fills the ring from a chain of operations until it ends or there is no room, and returns what is left of it. Entries
/// are taken by the dozen here: asking liburing for each one costs more than filling it.
inline ready_node* uring_engine::prepare(ready_node* node) noexcept {
    io_uring_sq& sq = ring_.sq;
    const unsigned first = sq.sqe_tail;
    const unsigned free = sq.ring_entries - (first - std::atomic_ref<unsigned>(*sq.khead).load(std::memory_order_acquire));
    const unsigned end = first + std::min(free, in_flight_max_ - in_flight_);
    unsigned tail = first;
    while (node != nullptr && tail != end) {
        ready_node* next = node->next;
        fill(sq.sqes[tail & sq.ring_mask], static_cast<operation&>(*node));
        ++tail;
        node = next;
    }
    sq.sqe_tail = tail;
    in_flight_ += tail - first;
    stats_.started += tail - first;
    return node;
}

/// Gives the ring what was started since the last turn, in the order of the starts.
inline void uring_engine::take_started() noexcept {
    if ((attention_ & (withdrawn | delayed)) == 0) [[likely]] {
        ready_node* left = prepare(started_->first());
        started_->advance_to(left);
        if (left == nullptr) [[likely]] return;
    }
    take_slowly();
}

void uring_engine::take_slowly() noexcept {
    if ((attention_ & withdrawn) != 0) { // whether there is room for it or not
        complete_withdrawn(delayed_);
        complete_withdrawn(*started_);
    }
    refill(delayed_);
    if (delayed_.empty()) refill(*started_);
    while (ready_node* left = started_->pop()) {
        ++stats_.delayed;
        delayed_.push(*left);
    }
    attention_ &= ~(withdrawn | delayed);
    if (!delayed_.empty()) attention_ |= delayed;
}

/// As many as the kernel may hold, by way of a submission queue that may be smaller.
void uring_engine::refill(ready_queue& from) noexcept {
    while (!from.empty() && in_flight_ < in_flight_max_) {
        from.advance_to(prepare(from.first()));
        if (io_uring_sq_space_left(&ring_) != 0) continue;
        submitted(io_uring_submit(&ring_));
        if (io_uring_sq_space_left(&ring_) == 0) return; // the kernel takes none at the moment
    }
}

void uring_engine::complete_withdrawn(ready_queue& from) noexcept {
    ready_queue kept;
    while (ready_node* node = from.pop()) {
        auto& op = static_cast<operation&>(*node);
        if (op.current_state() == operation::state::withdrawn) op.complete(-ECANCELED, 0);
        else kept.push(op);
    }
    from.append(kept);
}

bool uring_engine::prepare_cancel(std::uint64_t user_data) noexcept {
    io_uring_sqe* sqe = take_sqe();
    if (sqe == nullptr) return false;
    // The target is named by its address. A new operation at the same address can only be submitted after this
    // request, and the kernel looks for the target when it takes the request, so it can't hit the newcomer.
    io_uring_prep_cancel64(sqe, user_data, 0);
    sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    sqe->user_data = cancel_tag;
    return true;
}

void uring_engine::cancel(operation& op) noexcept {
    if (op.current_state() == operation::state::queued) {
        op.set_state(operation::state::withdrawn);
        attention_ |= withdrawn;
        return;
    }
    if (op.current_state() != operation::state::submitted) return;
    if (prepare_cancel(reinterpret_cast<std::uint64_t>(&op))) return;
    cancels_.push(op);
    attention_ |= unsent_cancel;
}

bool uring_engine::arm_wake() noexcept {
    io_uring_sqe* sqe = take_sqe();
    if (sqe == nullptr) return false;
    // Multishot and edge-like: every write to the eventfd gives a completion, so its counter is never read back.
    io_uring_prep_poll_multishot(sqe, wake_fd_.get(), POLLIN);
    sqe->user_data = wake_tag;
    attention_ &= ~unarmed;
    return true;
}

inline void uring_engine::reap() noexcept {
    const io_uring_cqe* const entries = ring_.cq.cqes;
    const unsigned mask = ring_.cq.ring_mask;
    const unsigned first = *ring_.cq.khead;
    const unsigned tail = std::atomic_ref<unsigned>(*ring_.cq.ktail).load(std::memory_order_acquire);
    unsigned ended = 0;
    for (unsigned head = first; head != tail; ++head) {
        const io_uring_cqe& cqe = entries[head & mask];
        if (cqe.user_data <= cancel_tag) [[unlikely]] {
            if (cqe.user_data == wake_tag && (cqe.flags & IORING_CQE_F_MORE) == 0) attention_ |= unarmed;
            continue;
        }
        auto& op = *reinterpret_cast<operation*>(cqe.user_data);
        if ((cqe.flags & IORING_CQE_F_MORE) == 0) {
            ++ended;
            if ((attention_ & unsent_cancel) != 0) [[unlikely]] cancels_.remove(op);
        }
        op.complete(cqe.res, cqe.flags);
    }
    if (first != tail) io_uring_cq_advance(&ring_, tail - first);
    in_flight_ -= ended;
    stats_.completed += ended;
    if ((attention_ & (unsent_cancel | unarmed)) != 0) [[unlikely]] repair();
}

/// Sends what found no room before.
void uring_engine::repair() noexcept {
    while (!cancels_.empty()) {
        if (!prepare_cancel(reinterpret_cast<std::uint64_t>(static_cast<operation*>(cancels_.first())))) return;
        cancels_.pop();
    }
    attention_ &= ~unsent_cancel;
    if ((attention_ & unarmed) != 0) static_cast<void>(arm_wake());
}

void uring_engine::submitted(int rc) noexcept {
    ++stats_.enters;
    if (rc < 0) [[unlikely]] enter_failed(rc);
    else requeue_failures_ = 0;
}

void uring_engine::enter_failed(int rc) noexcept {
    if (rc == -EINTR || rc == -ETIME) return;
    if (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM) {
        // Out of request memory for the moment, or completions to be taken first: what was not taken stays queued
        // and goes with a later turn [io_uring_enter(2)].
        if (++requeue_failures_ > 100) sched_yield();
        return;
    }
    std::fprintf(stderr, "sluice: io_uring_enter failed for good: %s (%d)\n", std::strerror(-rc), -rc);
    std::abort();
}

void uring_engine::turn() noexcept {
    take_started();
    if (io_uring_sq_ready(&ring_) != 0) {
        submitted(io_uring_submit_and_get_events(&ring_));
    } else if (kernel_has_work()) {
        submitted(io_uring_get_events(&ring_));
    }
    reap();
}

inline void uring_engine::turn_and_wait(std::optional<std::chrono::steady_clock::time_point> deadline) noexcept {
    // Never sleep without the wake-up, on an unsent cancel, or when a withdrawn operation is about to complete.
    if ((attention_ & (unarmed | unsent_cancel | withdrawn)) != 0) [[unlikely]] {
        turn();
        return;
    }
    take_started();
    if ((attention_ & delayed) != 0 && in_flight_max_ < in_flight_ceiling) [[unlikely]] {
        admit_more();
        return;
    }
    ++stats_.sleeps;
    if (!deadline) {
        submitted(io_uring_submit_and_wait(&ring_, 1));
    } else {
        const auto left = std::max(std::chrono::nanoseconds(*deadline - std::chrono::steady_clock::now()),
                                   std::chrono::nanoseconds(0));
        __kernel_timespec ts{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
        io_uring_cqe* first = nullptr;
        submitted(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &ts, nullptr));
    }
    reap();
}

/// Operations wait for a slot, and nothing else is to be done. If nothing completes either, all that the kernel holds may
/// wait for ever, like the receives of idle connections: then more are let in than the completion queue has entries.
/// Should more of them than that complete at once, the kernel keeps the rest for the next turn [io_uring_setup(2)
/// IORING_FEAT_NODROP].
void uring_engine::admit_more() noexcept {
    const auto before = stats_.completed;
    turn();
    if (stats_.completed == before) in_flight_max_ *= 2;
}

void uring_engine::drive(executor_impl& loop, executor& self, const bool* done) noexcept {
    loop.loop(self, *this, done);
}

void uring_engine::wake() noexcept {
    const std::uint64_t one = 1;
    // EAGAIN would mean a counter of 2^64-2: then a wake-up is pending anyway.
    while (write(wake_fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
}

result<void> uring_engine::register_buffers(std::uint32_t first_slot, std::span<const iovec> buffers) {
    SLUICE_EXPECTS(first_slot <= buffer_slots && buffers.size() <= buffer_slots - first_slot, "ring: no such buffer slot");
    if (!has_buffer_table_) {
        if (const int rc = io_uring_register_buffers_sparse(&ring_, buffer_slots); rc < 0)
            return error::from_errno(-rc, "io_uring_register_buffers_sparse");
        has_buffer_table_ = true;
    }
    // One by one: for several the kernel answers how many it took, and not why it took no more.
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        const int rc = io_uring_register_buffers_update_tag(&ring_, first_slot + i, &buffers[i], nullptr, 1);
        if (rc == 1) continue;
        unregister_buffers(first_slot, i);
        return error::from_errno(rc < 0 ? -rc : EIO, "io_uring_register_buffers_update_tag");
    }
    return {};
}

void uring_engine::unregister_buffers(std::uint32_t first_slot, std::uint32_t count) noexcept {
    const iovec none{};
    for (std::uint32_t i = 0; i < count; ++i)
        static_cast<void>(io_uring_register_buffers_update_tag(&ring_, first_slot + i, &none, nullptr, 1));
}

result<std::uint32_t> uring_engine::register_file(int fd) {
    if (free_file_slots_.empty()) return errc::out_of_resources;
    const std::uint32_t slot = free_file_slots_.back();
    if (const int rc = io_uring_register_files_update(&ring_, slot, &fd, 1); rc < 0)
        return error::from_errno(-rc, "io_uring_register_files_update");
    free_file_slots_.pop_back();
    return slot;
}

void uring_engine::unregister_file(std::uint32_t slot) noexcept {
    int none = -1;
    static_cast<void>(io_uring_register_files_update(&ring_, slot, &none, 1));
    free_file_slots_.push_back(slot);
}

std::vector<engine_feature> uring_engine::features() const {
    const auto flag = [this](unsigned bit) { return (ring_.flags & bit) != 0; };
    const auto feature = [this](unsigned bit) { return (ring_.features & bit) != 0; };
    return {{"submit all", flag(IORING_SETUP_SUBMIT_ALL)},
            {"single issuer", flag(IORING_SETUP_SINGLE_ISSUER)},
            {"deferred task work", flag(IORING_SETUP_DEFER_TASKRUN)},
            {"no dropped completions", feature(IORING_FEAT_NODROP)},
            {"skipped completions", feature(IORING_FEAT_CQE_SKIP)},
            {"wait with timeout", feature(IORING_FEAT_EXT_ARG)},
            {"registered ring", ring_fd_registered_},
            {"registered files", !free_file_slots_.empty()},
            {"zero-copy send", supports(opcode::send_zc)}};
}

std::string uring_engine::description() const {
    return std::string("io_uring (") + flags_name_ + "), " + std::to_string(*ring_.sq.kring_entries) + "/" +
           std::to_string(*ring_.cq.kring_entries) + " entries";
}

} // namespace

result<std::unique_ptr<engine>> make_uring_engine(const executor_options& options) {
    auto made = std::make_unique<uring_engine>();
    if (auto opened = made->open(options); !opened) return opened.error();
    return std::unique_ptr<engine>(std::move(made));
}

} // namespace sluice::detail
