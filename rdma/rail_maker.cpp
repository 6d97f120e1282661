#include "rdma/rail_maker.hpp"

#include <sluice/contract.hpp>

#include "net/text.hpp"
#include "rdma/device.hpp"
#include "rdma/rdma_listener.hpp"
#include "runtime/joined_call.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice::rdma {

namespace {
/// Opening a device registers all memory with it: that is not for each of the peers that ask.
constexpr std::chrono::seconds retry_pause{1};
} // namespace

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

bool rail_maker::stale() const noexcept {
    if (!decided_) return false;
    if (rail_ == nullptr) return std::chrono::steady_clock::now() >= retry_at_;
    return !rail_->on().is_alive() || rail_->broken();
}

/// Where it failed the outcome says so.
result<void> rail_maker::check_port(const rdma_cm_id& id) const {
    SLUICE_EXPECTS(decided_, "rdma: a port was asked for while its device is opened");
    const std::string& selection = listener_.rdma_devices();
    if (failure_ || selection.empty() || find_port(chosen_, id) != nullptr) return {};
    return error::from_errno(EADDRNOTAVAIL, "it came to " + port_and_address(id) +
                                                ", which is not chosen (rdma_devices " + net::quoted(selection) + ")");
}

net::background rail_maker::make() {
    auto opening = detail::run_joined([this] {
        if (const std::string& selection = listener_.rdma_devices(); !selection.empty()) {
            auto chosen = ports_to_listen_on(selection);
            if (chosen) chosen_ = std::move(*chosen);
            else failure_ = std::move(chosen).error();
            // A device that is not wanted is not opened, nor is all memory registered with it.
            const auto wanted = [this](const chosen_port& each) { return each.device == context_->device->name; };
            if (failure_ || std::ranges::none_of(chosen_, wanted)) return;
        }
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
    retry_at_ = std::chrono::steady_clock::now() + retry_pause;
    listener_.rail_is_decided();
}

} // namespace sluice::rdma
