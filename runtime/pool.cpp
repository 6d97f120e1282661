#include <sluice/executor.hpp>
#include <sluice/pool.hpp>

#include "runtime/mapped_range.hpp"
#include "runtime/page_allocator.hpp"
#include "runtime/poison.hpp"
#include "runtime/registration.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <string>

namespace sluice {

namespace {

using detail::page_bytes;

constexpr std::size_t pool_bytes_min = detail::huge_page_bytes;
constexpr std::size_t pool_bytes_max = std::size_t{1} << 40;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) noexcept { return (n + unit - 1) / unit * unit; }

/// 0 for nothing. Only for sizes that fit the pool, so that it fits the type.
std::uint32_t pages_of(std::size_t size_bytes) noexcept {
    return static_cast<std::uint32_t>((size_bytes + page_bytes - 1) / page_bytes);
}

/// Those who wait for one purpose, oldest first.
class waiter_queue {
public:
    memory_pool::waiter* head() const noexcept { return head_; }
    bool empty() const noexcept { return head_ == nullptr; }
    void push(memory_pool::waiter& w) noexcept {
        w.earlier = tail_;
        w.later = nullptr;
        (tail_ == nullptr ? head_ : tail_->later) = &w;
        tail_ = &w;
    }
    void remove(memory_pool::waiter& w) noexcept {
        (w.earlier == nullptr ? head_ : w.earlier->later) = w.later;
        (w.later == nullptr ? tail_ : w.later->earlier) = w.earlier;
        w.earlier = w.later = nullptr;
    }

private:
    memory_pool::waiter* head_ = nullptr;
    memory_pool::waiter* tail_ = nullptr;
};

/// On its own thread: nothing listens for a stop any more, and its task goes on.
void resume(memory_pool::waiter& w) noexcept {
    if (w.hook.linked) w.stop_state->unlink(w.hook);
    w.home->make_ready(w);
}

error never_fits(std::size_t asked, std::size_t largest, std::size_t reserve, purpose use) {
    std::string text = "memory pool: " + std::to_string(asked) + " bytes asked for, at most " + std::to_string(largest) +
                       " can ever be had";
    if (use == purpose::general) text += " (" + std::to_string(reserve) + " are reserved for receives)";
    return {make_error_code(errc::out_of_resources), text + "; make the pool larger or the request smaller"};
}

} // namespace

struct memory_pool::impl {
    impl(detail::mapped_range range, std::size_t reserve)
        : memory(std::move(range)), home{memory.data(), memory.size_bytes(), memory_kind::host}, reserve_bytes(reserve),
          allocator(pages_of(memory.size_bytes())) {
        detail::announce(home);
    }
    ~impl() { detail::withdraw(home); }
    impl(const impl&) = delete;
    impl& operator=(const impl&) = delete;

    // constant after create
    detail::mapped_range memory;
    detail::registration home;
    std::size_t reserve_bytes;

    // the mutex guards the rest; it is held for a few hundred nanoseconds and never while anything is called
    mutable std::mutex mutex;
    detail::page_allocator allocator;
    waiter_queue general;
    waiter_queue receives;
    std::size_t used_pages = 0;
    std::size_t peak_pages = 0;
    std::size_t leases = 0;
    std::size_t waiting = 0;
    std::uint64_t waits = 0;

    waiter_queue& queue_of(purpose use) noexcept { return use == purpose::receive ? receives : general; }
    std::size_t largest(purpose use) const noexcept {
        return use == purpose::receive ? home.size_bytes : home.size_bytes - reserve_bytes;
    }

    /// General memory comes from the low end and receives take from the high one, where the reserve lies: general
    /// leases can't break it up.
    bool take(std::size_t size_bytes, purpose use, region_view& view) noexcept {
        std::uint32_t first = 0;
        if (const std::uint32_t count = pages_of(size_bytes); count != 0) {
            const auto found = use == purpose::receive ? allocator.take_highest(count)
                                                       : allocator.take_lowest(count, pages_of(largest(use)));
            if (!found) return false;
            first = *found;
            used_pages += count;
            peak_pages = std::max(peak_pages, used_pages);
        }
        ++leases;
        view = region_view(home.base + first * page_bytes, size_bytes, home);
        return true;
    }

    /// Serves one queue in order, and stops at the first that doesn't fit: a large request is not overtaken for ever.
    void serve(waiter_queue& queue, waiter_queue& served) noexcept {
        while (waiter* const w = queue.head()) {
            if (!take(w->size_bytes, w->use, w->granted)) return;
            queue.remove(*w);
            --waiting;
            w->current = waiter::state::granted;
            served.push(*w);
        }
    }

    void give_back(region_view view, waiter_queue& served) noexcept {
        SLUICE_EXPECTS(leases > 0, "memory pool: a lease was given back twice");
        --leases;
        if (const std::uint32_t count = pages_of(view.size_bytes()); count != 0) {
            allocator.give_back(static_cast<std::uint32_t>(static_cast<std::size_t>(view.data() - home.base) / page_bytes),
                                count);
            used_pages -= count;
        }
        serve_all(served);
    }
    void serve_all(waiter_queue& served) noexcept {
        serve(receives, served);
        serve(general, served);
    }

    /// Outside the mutex. A served waiter stays alive until this resumes it, since a stop no longer ends its wait.
    static void resume_all(waiter_queue& served) noexcept {
        while (waiter* const w = served.head()) {
            served.remove(*w);
            if (executor::current() == w->home) resume(*w);
            else w->home->post(*w);
        }
    }

    void on_stop(waiter& w) noexcept {
        waiter_queue served;
        {
            const std::lock_guard lock(mutex);
            if (w.current != waiter::state::waiting) return; // served already, and success wins
            queue_of(w.use).remove(w);
            --waiting;
            w.current = waiter::state::canceled;
            serve_all(served); // it may have been the one that didn't fit
        }
        resume(w);
        resume_all(served);
    }
};

namespace {

error wrong_option(const char* name, std::size_t value, const std::string& allowed) {
    return {make_error_code(errc::invalid_argument),
            std::string("pool_options.") + name + " = " + std::to_string(value) + ", allowed is " + allowed};
}

} // namespace

memory_pool::memory_pool(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}

result<std::unique_ptr<memory_pool>> memory_pool::create(const pool_options& options) {
    if (options.size_bytes < pool_bytes_min || options.size_bytes > pool_bytes_max)
        return wrong_option("size_bytes", options.size_bytes,
                            std::to_string(pool_bytes_min) + ".." + std::to_string(pool_bytes_max) + " (2 MiB..1 TiB)");
    const std::size_t size_bytes = round_up(options.size_bytes, detail::huge_page_bytes);
    if (options.receive_reserve_bytes > size_bytes - page_bytes)
        return wrong_option("receive_reserve_bytes", options.receive_reserve_bytes,
                            "0 (one eighth of the pool) or 1.." + std::to_string(size_bytes - page_bytes));
    const std::size_t reserve =
        options.receive_reserve_bytes == 0 ? size_bytes / 8 : round_up(options.receive_reserve_bytes, page_bytes);
    auto range = detail::mapped_range::map(size_bytes, options.huge_pages);
    if (!range) return error(range.error().code(), "memory pool: " + std::string(range.error().detail()));
    detail::poison(range->data(), size_bytes);
    return std::unique_ptr<memory_pool>(new memory_pool(std::make_unique<impl>(std::move(*range), reserve)));
}

memory_pool::~memory_pool() {
    const pool_occupancy now = occupancy();
    SLUICE_EXPECTS(now.leases == 0, ("memory pool: destroyed while " + std::to_string(now.leases) + " leases of " +
                                     std::to_string(now.used_bytes) + " bytes are out")
                                        .c_str());
    SLUICE_EXPECTS(now.waiters == 0, "memory pool: destroyed while tasks wait for its memory");
    detail::unpoison(impl_->home.base, impl_->home.size_bytes); // the addresses may be mapped again
}

bool memory_pool::begin(waiter& w, detail::promise_base& promise) noexcept {
    SLUICE_EXPECTS(w.current == waiter::state::idle, "memory pool: an allocation was awaited twice");
    const stop_token token = promise.token();
    if (token.stop_requested()) {
        w.current = waiter::state::canceled;
        return false;
    }
    if (w.size_bytes > impl_->largest(w.use)) {
        w.current = waiter::state::too_large;
        return false;
    }
    w.handle = promise.handle;
    w.home = &promise.home();
    w.run = [](detail::posted_node& node) noexcept { resume(static_cast<waiter&>(node)); };
    if (token.stop_possible()) { // before others can serve it: only this thread ever touches the list
        w.stop_state = token.state();
        w.hook.owner = &w;
        w.hook.invoke = [](detail::stop_callback_node& node) noexcept {
            waiter& stopped = *static_cast<waiter::stop_hook&>(node).owner;
            stopped.pool->impl_->on_stop(stopped);
        };
        w.stop_state->link(w.hook);
    }
    {
        const std::lock_guard lock(impl_->mutex);
        const bool in_turn = w.size_bytes == 0 || impl_->queue_of(w.use).empty();
        if (!in_turn || !impl_->take(w.size_bytes, w.use, w.granted)) {
            w.current = waiter::state::waiting;
            impl_->queue_of(w.use).push(w);
            ++impl_->waiting;
            ++impl_->waits;
            return true;
        }
        w.current = waiter::state::granted;
    }
    if (w.hook.linked) w.stop_state->unlink(w.hook);
    return false;
}

result<pooled_buffer> memory_pool::finish(waiter& w) {
    switch (w.current) {
    case waiter::state::granted: {
        w.current = waiter::state::idle;
        detail::unpoison(w.granted.data(), w.granted.size_bytes());
        return pooled_buffer(*this, w.granted);
    }
    case waiter::state::canceled: return errc::canceled;
    case waiter::state::too_large: return never_fits(w.size_bytes, impl_->largest(w.use), impl_->reserve_bytes, w.use);
    case waiter::state::idle:
    case waiter::state::waiting: break;
    }
    SLUICE_EXPECTS(false, "memory pool: an allocation resumed before it was served");
    return errc::canceled;
}

result<pooled_buffer> memory_pool::try_allocate(std::size_t size_bytes, purpose use) {
    if (size_bytes > impl_->largest(use)) return never_fits(size_bytes, impl_->largest(use), impl_->reserve_bytes, use);
    region_view view;
    {
        const std::lock_guard lock(impl_->mutex);
        if (size_bytes != 0 && !impl_->queue_of(use).empty()) return errc::out_of_resources;
        if (!impl_->take(size_bytes, use, view)) return errc::out_of_resources;
    }
    detail::unpoison(view.data(), size_bytes);
    return pooled_buffer(*this, view);
}

void memory_pool::release(region_view view) noexcept {
    detail::poison(view.data(), round_up(view.size_bytes(), page_bytes));
    waiter_queue served;
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->give_back(view, served);
    }
    impl::resume_all(served);
}

pool_occupancy memory_pool::occupancy() const noexcept {
    const std::lock_guard lock(impl_->mutex);
    return {.size_bytes = impl_->home.size_bytes,
            .used_bytes = impl_->used_pages * page_bytes,
            .peak_bytes = impl_->peak_pages * page_bytes,
            .reserve_bytes = impl_->reserve_bytes,
            .leases = impl_->leases,
            .waiters = impl_->waiting,
            .waits = impl_->waits};
}

const detail::registration& memory_pool::registration() const noexcept { return impl_->home; }

bool memory_pool::uses_huge_pages() const noexcept { return impl_->memory.huge(); }

void pooled_buffer::reset() noexcept {
    if (pool_ == nullptr) return;
    std::exchange(pool_, nullptr)->release(std::exchange(view_, {}));
}

} // namespace sluice
