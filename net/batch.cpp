#include <sluice/connection.hpp>

#include "net/provider.hpp"

#include <coroutine>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

namespace sluice {

using detail::transfer_kind;

struct batch::entry {
    transfer_kind kind;
    remote_view remote;
    const_region_view source;
    region_view target;
};

namespace {

/// Resumed once by each transfer that ends; the last one wakes the task that submitted them.
struct collector {
    struct promise_type : detail::promise_base {
        std::size_t left = 0;
        detail::promise_base* waiter = nullptr;

        collector get_return_object() noexcept {
            const auto self = std::coroutine_handle<promise_type>::from_promise(*this);
            handle = self;
            return {self};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
};

struct next_end {
    collector::promise_type* promise = nullptr;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<collector::promise_type> h) noexcept { promise = &h.promise(); }
    bool await_resume() const noexcept { return --promise->left > 0; }
};

/// The first resumption comes from the first transfer that ends, and stands for it.
collector collect() {
    struct self {
        collector::promise_type* promise = nullptr;
        bool await_ready() const noexcept { return false; }
        bool await_suspend(std::coroutine_handle<collector::promise_type> h) noexcept {
            promise = &h.promise();
            return false;
        }
        collector::promise_type& await_resume() const noexcept { return *promise; }
    };
    collector::promise_type& promise = co_await self();
    bool more = --promise.left > 0;
    while (more) more = co_await next_end();
    promise.waiter->home().make_ready(*promise.waiter);
}

/// Starts all transfers; resumes when the last has ended.
class start_all {
public:
    explicit start_all(std::deque<detail::void_transfer>& transfers) noexcept : transfers_(transfers) {}
    bool await_ready() const noexcept { return transfers_.empty(); }
    template <detail::sluice_promise Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) {
        collector counting = collect();
        collector::promise_type& promise = counting.handle.promise();
        promise.bind(h.promise().home(), h.promise().token());
        promise.waiter = &h.promise();
        for (auto& t : transfers_)
            if (t.begin(promise)) ++promise.left;
        if (promise.left > 0) return true;
        counting.handle.destroy(); // none could start
        return false;
    }
    void await_resume() const noexcept {}

private:
    std::deque<detail::void_transfer>& transfers_;
};

} // namespace

batch connection::batch() { return sluice::batch(*this); }

batch::batch(connection& conn) noexcept : connection_(&conn) {}
batch::batch(batch&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)), entries_(std::move(other.entries_)) {}
batch::~batch() = default;

void batch::read(remote_view from, region_view into) {
    SLUICE_EXPECTS(from.size_bytes() == into.size_bytes(), "batch: read between ranges of different sizes");
    entries_.push_back({.kind = transfer_kind::read, .remote = from, .source = {}, .target = into});
}

void batch::write(remote_view to, const_region_view from) {
    SLUICE_EXPECTS(to.size_bytes() == from.size_bytes(), "batch: write between ranges of different sizes");
    entries_.push_back({.kind = transfer_kind::write, .remote = to, .source = from, .target = {}});
}

void batch::send(const_region_view message) {
    entries_.push_back({.kind = transfer_kind::send, .remote = {}, .source = message, .target = {}});
}

std::size_t batch::size() const noexcept { return entries_.size(); }

task<result<void>> batch::submit(operation_options options) {
    SLUICE_EXPECTS(connection_ != nullptr, "batch: submitted twice, or moved from");
    SLUICE_EXPECTS(connection_->impl_ != nullptr, "connection: used when empty or moved from");
    detail::provider_connection& c = *std::exchange(connection_, nullptr)->impl_;
    std::deque<detail::void_transfer> transfers; // they must not move
    for (const entry& e : entries_) {
        if (e.kind == transfer_kind::read) transfers.emplace_back(c, options, e.remote, e.target);
        else transfers.emplace_back(c, e.kind, options, e.remote, e.source);
    }
    co_await start_all(transfers);
    std::optional<error> first;
    for (auto& t : transfers) {
        auto outcome = t.await_resume();
        if (!outcome && !first) first = std::move(outcome).error();
    }
    if (first) co_return *std::move(first);
    co_return result<void>();
}

} // namespace sluice
