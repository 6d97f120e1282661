#include "rdma/rail_maker.hpp"

#include <sluice/contract.hpp>

#include "rdma/device.hpp"
#include "rdma/rdma_listener.hpp"
#include "runtime/joined_call.hpp"

#include <utility>

namespace sluice::rdma {

rail_maker::rail_maker(rdma_listener& listener, executor& home, ibv_context* context)
    : listener_(listener), home_(home), context_(context) {
    SLUICE_EXPECTS(context != nullptr, "rdma: a request that came over no device");
    work_ = make();
    work_.start(home_);
}

rail_maker::~rail_maker() { work_.end(home_); }

result<std::shared_ptr<rail>> rail_maker::outcome() const {
    SLUICE_EXPECTS(decided_, "rdma: a rail was asked for while it is made");
    if (failure_) return *failure_;
    return rail_;
}

bool rail_maker::stale() const noexcept { return decided_ && (failure_ || !rail_->on().is_alive() || rail_->broken()); }

net::background rail_maker::make() {
    auto opening = detail::run_joined([this] {
        auto opened = device::of(context_);
        if (opened) device_ = *opened;
        else failure_ = std::move(opened).error();
    });
    co_await opening;
    if (device_ != nullptr) rail_ = rail::existing(home_, *device_);
    if (device_ != nullptr && rail_ == nullptr) {
        auto making = detail::run_joined([this] {
            auto made = rail::make(home_, *device_);
            if (made) rail_ = std::move(*made);
            else failure_ = std::move(made).error();
        });
        co_await making;
        if (rail_ != nullptr) rail_ = rail::install(std::move(rail_));
    }
    decided_ = true;
    listener_.rail_is_decided();
}

} // namespace sluice::rdma
