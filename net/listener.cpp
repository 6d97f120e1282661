#include <sluice/connection.hpp>

#include "net/provider.hpp"

#include <utility>

namespace sluice {

namespace {

detail::provider_listener& in(const std::unique_ptr<detail::provider_listener>& impl) noexcept {
    SLUICE_EXPECTS(impl != nullptr, "listener: used when empty or moved from");
    return *impl;
}

} // namespace

listener::listener() noexcept = default;
listener::listener(std::unique_ptr<detail::provider_listener> impl) noexcept : impl_(std::move(impl)) {}
listener::listener(listener&&) noexcept = default;
listener& listener::operator=(listener&&) noexcept = default;
listener::~listener() = default;

task<result<connection>> listener::accept() {
    auto made = co_await in(impl_).accept();
    if (!made) co_return std::move(made).error();
    co_return connection(std::move(*made));
}

void listener::close() noexcept { in(impl_).close(); }
address listener::address() const { return in(impl_).address(); }
std::uint64_t listener::rejected() const noexcept { return in(impl_).rejected(); }

} // namespace sluice
