#include "net/auto_listener.hpp"

#include <sluice/when_any.hpp>

#include "runtime/log.hpp"

#include <deque>
#include <string>
#include <utility>

namespace sluice::net {

namespace {

using detail::provider_connection;
using detail::provider_listener;

class auto_listener final : public provider_listener {
public:
    auto_listener(std::unique_ptr<provider_listener> over_rdma, std::unique_ptr<provider_listener> over_tcp) noexcept
        : rdma_(std::move(over_rdma)), tcp_(std::move(over_tcp)) {}

    task<result<std::unique_ptr<provider_connection>>> accept() override {
        for (;;) {
            if (closed_)
                co_return error(errc::closed, "accept on " + address().to_string() + ": the listener was closed");
            if (!accepted_.empty()) {
                auto first = std::move(accepted_.front());
                accepted_.pop_front();
                co_return first;
            }
            if (rdma_lost_) co_return co_await tcp_->accept();
            auto either = co_await when_any(take(*rdma_), take(*tcp_));
            if (!accepted_.empty()) continue; // or both: the other one stays for the next
            const error& why = either.value.error();
            if (either.index == 0 && why != condition::canceled && !closed_) {
                do_without_rdma(why);
                continue;
            }
            co_return why;
        }
    }
    void close() noexcept override {
        closed_ = true;
        accepted_.clear();
        rdma_->close();
        tcp_->close();
    }
    sluice::address address() const override {
        sluice::address where = tcp_->address();
        where.scheme = scheme::automatic;
        return where;
    }
    std::uint64_t rejected() const noexcept override { return rdma_->rejected() + tcp_->rejected(); }

private:
    /// The one that is stopped because the other was faster may have been fast enough too.
    task<result<void>> take(provider_listener& from) {
        auto got = co_await from.accept();
        if (!got) co_return std::move(got).error();
        accepted_.push_back(std::move(*got));
        co_return result<void>();
    }

    /// Such as after its device was removed: it would fail from now on, and whoever has TCP can still come.
    void do_without_rdma(const error& why) noexcept {
        if (std::exchange(rdma_lost_, true)) return;
        SLUICE_LOG(warning, "listening at ", address().to_string(), " over TCP only from now on: ", why.message());
        rdma_->close();
    }

    std::unique_ptr<provider_listener> rdma_;
    std::unique_ptr<provider_listener> tcp_;
    std::deque<std::unique_ptr<provider_connection>> accepted_;
    bool rdma_lost_ = false;
    bool closed_ = false;
};

} // namespace

task<result<std::unique_ptr<provider_listener>>> auto_listen(address on, listen_options options,
                                                             detail::provider_setup setup, bool require_rdma) {
    detail::provider_setup for_rdma = setup;
    for_rdma.choice = "rdma: the peer asked for it";
    if (require_rdma) co_return co_await detail::provider_of(scheme::rdma)->listen(std::move(on), options, std::move(for_rdma));
    setup.choice = "tcp: the peer asked for it";
    auto over_tcp = co_await detail::provider_of(scheme::tcp)->listen(on, options, std::move(setup));
    if (!over_tcp) co_return std::move(over_tcp).error();
    // The same address, also where the name has several: who finds one of both there finds the other.
    on = (*over_tcp)->address();
    on.scheme = scheme::automatic;
    auto over_rdma = co_await detail::provider_of(scheme::rdma)->listen(on, options, std::move(for_rdma));
    if (!over_rdma) {
        // iWARP has its connections on TCP's own ports, of which the TCP listener now holds this one.
        SLUICE_LOG(warning, "listening at ", on.to_string(), " over TCP only: ", over_rdma.error().message(),
                   over_rdma.error() == std::errc::address_in_use
                       ? " (an iWARP device shares TCP's ports: listen at rdma:// with a port of its own, or at the address of another device)"
                       : "");
        co_return std::move(*over_tcp);
    }
    co_return std::make_unique<auto_listener>(std::move(*over_rdma), std::move(*over_tcp));
}

} // namespace sluice::net
