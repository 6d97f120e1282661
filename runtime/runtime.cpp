#include "runtime/runtime_impl.hpp"

#include <sluice/runtime.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <latch>
#include <linux/futex.h>
#include <sched.h>
#include <string>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice {

namespace {

std::vector<unsigned> usable_cpus() {
    std::vector<unsigned> cpus;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
}

error wrong_option(const std::string& what, const char* allowed) {
    return {make_error_code(errc::invalid_argument), "runtime_options." + what + ", allowed is " + allowed};
}

/// What the options leave to the environment is taken from there. Errors: a list of devices that is none, by where it
/// came from.
result<runtime_options> complete(const runtime_options& given) {
    runtime_options o = given;
    const char* from = "runtime_options.rdma_devices";
    if (const char* const text = std::getenv("SLUICE_RDMA_USE"); text != nullptr && o.rdma_devices.empty()) {
        o.rdma_devices = text;
        from = "SLUICE_RDMA_USE";
    }
    if (o.rdma_devices.empty()) return o;
    if (auto known = detail::check_rdma_devices(o.rdma_devices); !known)
        return error(known.error().code(), std::string(from) + ": " + std::string(known.error().detail()));
    return o;
}

result<void> validate(const runtime_options& o) {
    if (o.executors > 1024) return wrong_option("executors = " + std::to_string(o.executors), "0..1024");
    if (o.rdma == mode::require)
        if (auto usable = detail::rdma_usable(o.rdma_devices); !usable)
            return error(errc::unsupported, "rdma: required, but " + usable.error().message() +
                                                "; set mode automatic to use TCP instead");
    if (o.gpu_direct == mode::require)
        return error(errc::unsupported, "gpu_direct: required, but this build has no GPU support; set mode automatic");
    return {};
}

} // namespace

runtime::impl::~impl() {
    for (auto& each : threads)
        if (each.home != nullptr) each.home->stop();
    for (auto& each : threads)
        if (each.thread.joinable()) each.thread.join();
}

result<void> runtime::impl::start(const runtime_options& wanted) {
    options = wanted;
    if (getrandom(&owner, sizeof owner, 0) != sizeof owner) return error::from_errno(errno, "getrandom");
    auto made = memory_pool::create({.size_bytes = options.pool_bytes,
                                     .receive_reserve_bytes = options.receive_reserve_bytes,
                                     .huge_pages = options.huge_pages});
    if (!made) return std::move(made).error();
    pool = std::move(*made);

    const std::vector<unsigned> cpus = usable_cpus();
    const std::size_t count = options.executors != 0 ? options.executors : std::max<std::size_t>(cpus.size(), 1);
    // Two executors on one CPU would only get in each other's way.
    const bool pin = options.pin && count <= cpus.size();
    threads.resize(count);
    std::latch started(static_cast<std::ptrdiff_t>(count));
    for (std::size_t i = 0; i < count; ++i) {
        executor_options mine = options.executor;
        if (pin && !mine.cpu) mine.cpu = cpus[i];
        executor_thread& slot = threads[i];
        slot.thread = std::thread([this, &slot, &started, mine] { run_executor(slot, mine, started); });
    }
    started.wait();
    for (executor_thread& each : threads)
        if (each.home == nullptr) return each.failure;
    return {};
}

void runtime::impl::run_executor(executor_thread& slot, const executor_options& mine, std::latch& started) {
    // The ring is made here: the kernel binds it to the thread that submits, and its memory to this CPU's node.
    auto made = executor::create(mine);
    if (!made) {
        slot.failure = std::move(made).error();
        started.count_down();
        return;
    }
    const std::unique_ptr<executor> home = std::move(*made);
    if (auto known = home->register_memory(pool->registration()); !known) {
        slot.failure = std::move(known).error();
        started.count_down();
        return;
    }
    home->use_pool(*pool);
    slot.home = home.get();
    started.count_down();
    home->run();
}

runtime::runtime(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}
runtime::runtime(runtime&&) noexcept = default;
runtime& runtime::operator=(runtime&&) noexcept = default;

runtime::~runtime() {
    SLUICE_EXPECTS(executor::current() == nullptr || impl_ == nullptr || !impl_->owns(*executor::current()),
                   "runtime: destroyed on one of its own executors");
}

result<runtime> runtime::create(const runtime_options& options) {
    auto whole = complete(options);
    if (!whole) return whole.error();
    if (auto ok = validate(*whole); !ok) return ok.error();
    auto made = std::make_unique<impl>();
    if (auto started = made->start(*whole); !started) return started.error();
    return runtime(std::move(made));
}

memory_pool& runtime::pool() noexcept { return *impl_->pool; }

std::uint32_t runtime::executors() const noexcept { return static_cast<std::uint32_t>(impl_->threads.size()); }

executor& runtime::executor_at(std::uint32_t index) noexcept {
    SLUICE_EXPECTS(index < impl_->threads.size(), "runtime: no executor of this index");
    return *impl_->threads[index].home;
}

namespace detail {

void remote_root::start_and_wait() {
    SLUICE_EXPECTS(executor::current() == nullptr, "runtime::sync_wait: called on an executor; co_await instead");
    run = [](posted_node& node) noexcept {
        auto& self = static_cast<remote_root&>(node);
        self.root->bind(*self.home, stop_token{});
        self.home->count_spawn();
        self.home->make_ready(*self.root);
    };
    home->post(*this);
    while (ended_.load(std::memory_order_acquire) == 0)
        syscall(SYS_futex, &ended_, FUTEX_WAIT_PRIVATE, 0U, nullptr, nullptr, 0);
}

void remote_root::finished() noexcept {
    // The waiting thread may destroy this object as soon as it sees the value: from here on only its address is used,
    // and a wake-up on a dead address is harmless [futex(2)].
    auto* word = &ended_;
    ended_.store(1, std::memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

} // namespace detail

} // namespace sluice
