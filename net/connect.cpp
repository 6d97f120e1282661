#include <sluice/runtime.hpp>

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
    if (!within(o.lanes, 16)) return wrong_option(number("lanes", o.lanes), "1..16");
    if (!within(o.operations_in_flight, 65536))
        return wrong_option(number("operations_in_flight", o.operations_in_flight), "1..65536");
    if (!within(o.receive_credits, 4096)) return wrong_option(number("receive_credits", o.receive_credits), "1..4096");
    if (!within(o.message_bytes_max, 1U << 30))
        return wrong_option(number("message_bytes_max", o.message_bytes_max), "1..1 GiB");
    return {};
}

struct choice {
    const detail::provider* provider;
    std::string why;
};

/// The provider that an address asks for, or the best for `auto`, and why that one.
result<choice> choose(scheme asked, mode rdma) {
    std::string passed_over;
    for (const detail::provider* each : detail::providers()) {
        if (asked != scheme::automatic && each->scheme() != asked) continue;
        if (asked == scheme::automatic && each->scheme() == scheme::rdma && rdma == mode::off) {
            passed_over = "rdma is off (runtime_options.rdma)";
            continue;
        }
        if (auto usable = each->available(); !usable) {
            if (asked != scheme::automatic) return std::move(usable).error();
            passed_over = usable.error().message();
            continue;
        }
        if (asked == scheme::tcp) return choice{each, "tcp: asked for by the address"};
        if (asked == scheme::rdma) return choice{each, "rdma: asked for by the address"};
        if (each->scheme() == scheme::rdma) return choice{each, "rdma: this machine has it"};
        return choice{each, "tcp: " + (passed_over.empty() ? "no RDMA in this build" : passed_over)};
    }
    return error(errc::unsupported, "rdma://: no RDMA in this build; use tcp:// or auto://");
}

} // namespace

task<result<connection>> runtime::connect(address to, connection_options options) {
    if (auto ok = validate(options); !ok) co_return std::move(ok).error();
    if (!to.is_unix() && to.port == 0)
        co_return error(errc::invalid_address, "connect to " + to.to_string() + ": port 0 is for listening only");
    auto chosen = choose(to.scheme, impl_->options.rdma);
    if (!chosen) co_return std::move(chosen).error();
    detail::provider_setup setup{.choice = std::move(chosen->why), .owner = impl_->owner};
    auto made = co_await chosen->provider->connect(std::move(to), std::move(options), std::move(setup));
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
    auto chosen = choose(on.scheme, impl_->options.rdma);
    if (!chosen) co_return std::move(chosen).error();
    detail::provider_setup setup{.choice = std::move(chosen->why), .owner = impl_->owner};
    auto made = co_await chosen->provider->listen(std::move(on), std::move(options), std::move(setup));
    if (!made) co_return std::move(made).error();
    co_return listener(std::move(*made));
}

task<result<listener>> runtime::listen(std::string_view on, listen_options options) {
    auto parsed = address::parse(on);
    if (!parsed) return [](error e) -> task<result<listener>> { co_return e; }(std::move(parsed).error());
    return listen(std::move(*parsed), std::move(options));
}

} // namespace sluice
