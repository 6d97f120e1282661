#include "rdma/rdma_provider.hpp"

#include "rdma/device_selector.hpp"

#include <utility>

namespace sluice {

namespace rdma {

namespace {

class provider final : public detail::provider {
public:
    sluice::scheme scheme() const noexcept override { return sluice::scheme::rdma; }
    result<void> available(const std::string& rdma_devices) const override { return rdma_available(rdma_devices); }
    result<void> check_devices(const std::string& rdma_devices) const override {
        if (auto parsed = device_selector::parse(rdma_devices); !parsed) return std::move(parsed).error();
        return {};
    }
    task<result<std::unique_ptr<detail::provider_connection>>> connect(address to, connection_options options,
                                                                       detail::provider_setup setup) const override {
        return rdma_connect(std::move(to), std::move(options), std::move(setup));
    }
    task<result<std::unique_ptr<detail::provider_listener>>> listen(address on, listen_options options,
                                                                    detail::provider_setup setup) const override {
        return rdma_listen(std::move(on), std::move(options), std::move(setup));
    }
};

constinit const provider the_provider;

} // namespace

} // namespace rdma

const detail::provider& detail::rdma_provider() noexcept { return rdma::the_provider; }

} // namespace sluice
