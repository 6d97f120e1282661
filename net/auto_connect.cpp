#include "net/auto_connect.hpp"

#include <sluice/contract.hpp>
#include <sluice/sleep.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace sluice::net {

namespace {

constexpr std::chrono::nanoseconds rdma_share_max = std::chrono::seconds(2);

} // namespace

task<result<std::unique_ptr<detail::provider_connection>>> auto_connect(address to, connection_options options,
                                                                        detail::provider_setup setup) {
    const detail::provider* const over_rdma = detail::provider_of(scheme::rdma);
    SLUICE_EXPECTS(over_rdma != nullptr && !to.is_unix(), "auto: RDMA is tried where there can be none");
    const auto until = detail::deadline_after(options.connect_timeout);
    connection_options first = options;
    // Set-up takes milliseconds where both ends have RDMA, and who has none there may not answer at all.
    first.connect_timeout = std::min(first.connect_timeout / 2, rdma_share_max);
    setup.choice = "rdma: both ends have it";
    auto made = co_await over_rdma->connect(to, std::move(first), setup);
    if (made || made.error() == condition::canceled) co_return made;
    setup.choice = "tcp: " + made.error().message();
    options.connect_timeout =
        std::max<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), std::chrono::milliseconds(1));
    co_return co_await detail::provider_of(scheme::tcp)->connect(std::move(to), std::move(options), std::move(setup));
}

} // namespace sluice::net
