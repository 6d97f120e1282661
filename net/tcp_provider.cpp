#include "net/tcp_provider.hpp"

#include "net/tcp_handshake.hpp"
#include "net/tcp_listener.hpp"

#include <utility>

namespace sluice::net {

namespace {

class provider final : public detail::provider {
public:
    sluice::scheme scheme() const noexcept override { return sluice::scheme::tcp; }
    result<void> available(const std::string&) const override { return {}; }
    task<result<std::unique_ptr<detail::provider_connection>>> connect(address to, connection_options options,
                                                                       detail::provider_setup setup) const override {
        return tcp_connect(std::move(to), std::move(options), std::move(setup));
    }
    task<result<std::unique_ptr<detail::provider_listener>>> listen(address on, listen_options options,
                                                                    detail::provider_setup setup) const override {
        return tcp_listen(std::move(on), std::move(options), std::move(setup));
    }
};

constinit const provider the_provider;

} // namespace

const detail::provider& tcp_provider() noexcept { return the_provider; }

} // namespace sluice::net
