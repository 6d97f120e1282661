#include <sluice/blocking.hpp>
#include <sluice/runtime.hpp>

#include "net/auto_connect.hpp"
#include "net/auto_listener.hpp"
#include "net/provider.hpp"
#include "runtime/runtime_impl.hpp"

#include <string>
#include <utility>

namespace sluice {

namespace {

error wrong_option(const std::string& what, const char* allowed) {
    return {make_error_code(errc::invalid_argument), "connection_options." + what + ", allowed is " + allowed};
}

result<void> validate(const connection_options& o) {
    const auto within = [](std::uint32_t value, std::uint32_t most) { return value >= 1 && value <= most; };
    const auto number = [](const char* name, std::uint32_t value) { return std::string(name) + " = " + std::to_string(value); };
    const auto time = [](const char* name, std::chrono::nanoseconds value) {
        return std::string(name) + " = " + std::to_string(value.count()) + " ns";
    };
    if (o.connect_timeout.count() <= 0) return wrong_option(time("connect_timeout", o.connect_timeout), "more than 0");
    if (o.default_deadline.count() < 0) return wrong_option(time("default_deadline", o.default_deadline), "0 (none) or more");
    if (o.peer_timeout < std::chrono::seconds(1))
        return wrong_option(time("peer_timeout", o.peer_timeout), "1 s or more");
    static_assert(detail::lanes_max == 16);
    if (!within(o.lanes, detail::lanes_max)) return wrong_option(number("lanes", o.lanes), "1..16");
    if (!within(o.operations_in_flight, 65536))
        return wrong_option(number("operations_in_flight", o.operations_in_flight), "1..65536");
    if (!within(o.receive_credits, 4096)) return wrong_option(number("receive_credits", o.receive_credits), "1..4096");
    if (!within(o.message_bytes_max, 1U << 30))
        return wrong_option(number("message_bytes_max", o.message_bytes_max), "1..1 GiB");
    return {};
}

/// Whether RDMA can be used by these devices, else why not. Choosing among them asks them, which blocks.
task<result<void>> rdma_usable(const std::string& devices) {
    if (devices.empty()) co_return detail::rdma_usable(devices);
    auto usable = co_await run_blocking([&devices] { return detail::rdma_usable(devices); });
    co_return usable;
}

/// The provider of an address that names one.
task<result<const detail::provider*>> named(const address& where, mode rdma, const std::string& rdma_devices) {
    const scheme asked = where.scheme;
    if (asked == scheme::rdma && rdma == mode::off)
        co_return error(errc::unsupported, where.to_string() + ": rdma is off (runtime_options.rdma); use tcp:// or auto://");
    const detail::provider* found = detail::provider_of(asked);
    if (found == nullptr) co_return error(errc::unsupported, "rdma://: no RDMA in this build; use tcp:// or auto://");
    if (asked == scheme::rdma)
        if (auto usable = co_await rdma_usable(rdma_devices); !usable) co_return std::move(usable).error();
    co_return found;
}

std::string asked_for(scheme s) { return std::string(s == scheme::rdma ? "rdma" : "tcp") + ": asked for by the address"; }

/// Why `auto` does without RDMA from the start, or an empty string.
task<std::string> no_rdma(const address& where, mode rdma, const std::string& devices) {
    if (rdma == mode::off) co_return "rdma is off (runtime_options.rdma)";
    if (where.is_unix()) co_return "unix sockets have no RDMA";
    if (detail::provider_of(scheme::rdma) == nullptr) co_return "no RDMA in this build";
    if (auto usable = co_await rdma_usable(devices); !usable) co_return std::string(usable.error().detail());
    co_return std::string();
}

error required(const std::string& why) {
    return {make_error_code(errc::unsupported), "rdma is required (runtime_options.rdma), but " + why};
}

} // namespace

task<result<connection>> runtime::connect(address to, connection_options options) {
    if (auto ok = validate(options); !ok) co_return std::move(ok).error();
    if (!to.is_unix() && to.port == 0)
        co_return error(errc::invalid_address, "connect to " + to.to_string() + ": port 0 is for listening only");
    detail::provider_setup setup{.choice = {}, .owner = impl_->owner, .rdma_devices = impl_->options.rdma_devices};
    const detail::provider* chosen = detail::provider_of(scheme::tcp);
    if (to.scheme != scheme::automatic) {
        auto asked = co_await named(to, impl_->options.rdma, setup.rdma_devices);
        if (!asked) co_return std::move(asked).error();
        chosen = *asked;
        setup.choice = asked_for(to.scheme);
    } else {
        std::string why_not = co_await no_rdma(to, impl_->options.rdma, setup.rdma_devices);
        if (why_not.empty() && impl_->options.rdma != mode::require) {
            auto made = co_await net::auto_connect(std::move(to), std::move(options), std::move(setup));
            if (!made) co_return std::move(made).error();
            co_return connection(std::move(*made));
        }
        if (why_not.empty()) {
            setup.choice = "rdma: both ends have it";
            auto made = co_await detail::provider_of(scheme::rdma)->connect(to, options, setup);
            if (made) co_return connection(std::move(*made));
            if (made.error() == condition::canceled) co_return std::move(made).error();
            why_not = made.error().message();
        }
        if (impl_->options.rdma == mode::require) co_return required(why_not);
        setup.choice = "tcp: " + why_not;
    }
    auto made = co_await chosen->connect(std::move(to), std::move(options), std::move(setup));
    if (!made) co_return std::move(made).error();
    co_return connection(std::move(*made));
}

task<result<connection>> runtime::connect(std::string_view to, connection_options options) {
    auto parsed = address::parse(to); // now: the text may not live until the task starts
    if (!parsed)
        return [](error e) -> task<result<connection>> { co_return e; }(std::move(parsed).error());
    return connect(std::move(*parsed), std::move(options));
}

task<result<listener>> runtime::listen(address on, listen_options options) {
    if (auto ok = validate(options.connection); !ok) co_return std::move(ok).error();
    if (options.backlog == 0)
        co_return error(errc::invalid_argument, "listen_options.backlog = 0, allowed is 1 or more");
    detail::provider_setup setup{.choice = {}, .owner = impl_->owner, .rdma_devices = impl_->options.rdma_devices};
    if (on.scheme == scheme::automatic) {
        if (std::string why_not = co_await no_rdma(on, impl_->options.rdma, setup.rdma_devices); why_not.empty()) {
            auto both = co_await net::auto_listen(std::move(on), std::move(options), std::move(setup),
                                                  impl_->options.rdma == mode::require);
            if (!both) co_return std::move(both).error();
            co_return listener(std::move(*both));
        } else if (impl_->options.rdma == mode::require) {
            co_return required(why_not);
        } else {
            setup.choice = "tcp: " + why_not;
        }
        auto made = co_await detail::provider_of(scheme::tcp)->listen(std::move(on), std::move(options), std::move(setup));
        if (!made) co_return std::move(made).error();
        co_return listener(std::move(*made));
    }
    auto chosen = co_await named(on, impl_->options.rdma, setup.rdma_devices);
    if (!chosen) co_return std::move(chosen).error();
    setup.choice = asked_for(on.scheme);
    auto made = co_await (*chosen)->listen(std::move(on), std::move(options), std::move(setup));
    if (!made) co_return std::move(made).error();
    co_return listener(std::move(*made));
}

task<result<listener>> runtime::listen(std::string_view on, listen_options options) {
    auto parsed = address::parse(on);
    if (!parsed) return [](error e) -> task<result<listener>> { co_return e; }(std::move(parsed).error());
    return listen(std::move(*parsed), std::move(options));
}

} // namespace sluice
