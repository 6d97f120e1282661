#include "rdma/rail.hpp"
#include "rdma/rail_impl.hpp"

#include <sluice/blocking.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::rdma {

namespace {

/// The rails in service on this thread.
struct in_service {
    executor* home;
    device* on;
    std::weak_ptr<rail> there;
};
thread_local std::vector<in_service> rails_of_thread;

} // namespace

rail::rail(std::unique_ptr<impl> made) noexcept : impl_(std::move(made)) {}

rail::~rail() {
    if (!impl_->core->in_poll()) return;
    // From within a callback: the poll goes on without it and ends with the core.
    impl_->core.release()->orphan();
}

task<result<std::shared_ptr<rail>>> rail::of(device& on) {
    executor& home = co_await this_executor();
    if (auto there = existing(home, on)) co_return there;
    const auto makes = [&home, &on] { return make(home, on); };
    auto made = co_await run_blocking(makes);
    if (!made) co_return made.error();
    co_return install(std::move(*made));
}

std::shared_ptr<rail> rail::existing(executor& home, device& on) noexcept {
    SLUICE_EXPECTS(executor::current() == &home, "rail: asked for on another thread than the executor's");
    std::erase_if(rails_of_thread, [](const in_service& s) { return s.there.expired(); });
    for (const in_service& s : rails_of_thread) {
        if (s.home != &home || s.on != &on) continue;
        // Of one that broke, its connections still have a part.
        if (auto there = s.there.lock(); !there->broken()) return there;
    }
    return nullptr;
}

result<std::shared_ptr<rail>> rail::make(executor& home, device& on) {
    auto core = rail_core::create(home, on);
    if (!core) return core.error();
    auto made = std::make_unique<impl>();
    made->core = std::move(*core);
    return std::shared_ptr<rail>(new rail(std::move(made)));
}

std::shared_ptr<rail> rail::install(std::shared_ptr<rail> made) {
    SLUICE_EXPECTS(made != nullptr, "rail: installed without being made");
    if (auto faster = existing(made->home(), made->on())) return faster;
    rails_of_thread.push_back({&made->home(), &made->on(), made});
    made->impl_->core->start();
    return made;
}

executor& rail::home() const noexcept { return impl_->core->home(); }

device& rail::on() const noexcept { return impl_->core->on(); }

bool rail::broken() const noexcept { return impl_->core->broken(); }

result<std::uint32_t> rail::add_slots(std::uint32_t least, std::uint32_t wanted) {
    return impl_->core->receives().add(least, wanted);
}

void rail::remove_slots(std::uint32_t count) noexcept { impl_->core->receives().remove(count); }

std::optional<rdma::witness> rail::witness() const noexcept { return impl_->core->witness(); }

rail::stats rail::counters() const noexcept { return impl_->core->counters(); }

} // namespace sluice::rdma
