#include <sluice/connection.hpp>

#include "net/provider.hpp"

#include <cstring>
#include <utility>

namespace sluice {

using detail::transfer_kind;

namespace {

detail::provider_connection& in(const std::unique_ptr<detail::provider_connection>& impl) noexcept {
    SLUICE_EXPECTS(impl != nullptr, "connection: used when empty or moved from");
    return *impl;
}

void expect_word(const remote_view& word) noexcept {
    SLUICE_EXPECTS(word.size_bytes() == sizeof(std::uint64_t) && word.address() % sizeof(std::uint64_t) == 0,
                   "connection: an atomic needs an aligned view of 8 bytes");
}

} // namespace

// ---- shared_region ----

shared_region::shared_region(shared_region&& other) noexcept
    : slot_(std::move(other.slot_)), description_(std::exchange(other.description_, {})) {}

shared_region& shared_region::operator=(shared_region&& other) noexcept {
    if (this != &other) {
        revoke();
        slot_ = std::move(other.slot_);
        description_ = std::exchange(other.description_, {});
    }
    return *this;
}

shared_region::~shared_region() { revoke(); }

void shared_region::revoke() noexcept {
    if (slot_ != nullptr) slot_->revoke();
}

// ---- connection ----

connection::connection(std::unique_ptr<detail::provider_connection> impl) noexcept : impl_(std::move(impl)) {}
connection::connection() noexcept = default;
connection::connection(connection&&) noexcept = default;
connection& connection::operator=(connection&&) noexcept = default;
connection::~connection() = default;

detail::void_transfer connection::read(remote_view from, region_view into, operation_options options) {
    SLUICE_EXPECTS(from.size_bytes() == into.size_bytes(), "connection: read between ranges of different sizes");
    return {in(impl_), options, from, into};
}

detail::void_transfer connection::write(remote_view to, const_region_view from, operation_options options) {
    SLUICE_EXPECTS(to.size_bytes() == from.size_bytes(), "connection: write between ranges of different sizes");
    return {in(impl_), transfer_kind::write, options, to, from};
}

detail::void_transfer connection::write_with_immediate(remote_view to, const_region_view from, std::uint32_t immediate,
                                                       operation_options options) {
    SLUICE_EXPECTS(to.size_bytes() == from.size_bytes(), "connection: write between ranges of different sizes");
    return {in(impl_), transfer_kind::write_with_immediate, options, to, from, immediate};
}

detail::value_transfer connection::fetch_add(remote_view word, std::uint64_t delta, operation_options options) {
    expect_word(word);
    return {in(impl_), transfer_kind::fetch_add, options, word, delta, 0};
}

detail::value_transfer connection::compare_swap(remote_view word, std::uint64_t expected, std::uint64_t desired,
                                                operation_options options) {
    expect_word(word);
    return {in(impl_), transfer_kind::compare_swap, options, word, desired, expected};
}

detail::void_transfer connection::send(const_region_view message, operation_options options) {
    return {in(impl_), transfer_kind::send, options, {}, message};
}

detail::receive_transfer connection::receive(region_view into, operation_options options) {
    return {in(impl_), options, into};
}

task<result<void>> connection::send_bytes(std::span<const std::byte> message, operation_options options) {
    // Small values lie in the frame of the sending task: the tcp provider needs no registration for them.
    const detail::registration home{.base = const_cast<std::byte*>(message.data()), .size_bytes = message.size()};
    co_return co_await send(const_region_view(message.data(), message.size(), home), options);
}

task<result<std::size_t>> connection::receive_bytes(std::span<std::byte> into, operation_options options) {
    const detail::registration home{.base = into.data(), .size_bytes = into.size()};
    auto got = co_await receive(region_view(into.data(), into.size(), home), options);
    if (!got) co_return std::move(got).error();
    if (got->immediate)
        co_return error(errc::protocol_error, "receive: an immediate of write_with_immediate came where a value was expected");
    co_return got->size_bytes;
}

task<result<shared_region>> connection::share(region_view memory, access granted) {
    auto made = co_await in(impl_).share(memory, granted);
    if (!made) co_return std::move(made).error();
    co_return shared_region(std::move(made->slot), made->description);
}

task<result<void>> connection::close() { return in(impl_).close(); }
task<result<void>> connection::closed() { return in(impl_).closed(); }
bool connection::is_open() const noexcept { return impl_ != nullptr && impl_->is_open(); }
path connection::path() const noexcept { return in(impl_).path(); }
capabilities connection::capabilities() const noexcept { return in(impl_).capabilities(); }
connection_stats connection::stats() const { return in(impl_).stats(); }
std::string connection::peer_address() const { return in(impl_).peer_address(); }
std::string connection::local_address() const { return in(impl_).local_address(); }
std::string connection::choice() const { return in(impl_).choice(); }

} // namespace sluice
