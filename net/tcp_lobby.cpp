#include "net/tcp_lobby.hpp"

#include <sluice/contract.hpp>

#include "net/random.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace sluice::net {

namespace {

/// The connections of this process that are forming. The only thing that connections of several threads share.
struct lobby {
    std::mutex mutex;
    std::map<connection_token, tcp_forming*> forming;
};

lobby& the_lobby() {
    static lobby one;
    return one;
}

} // namespace

tcp_forming::tcp_forming(executor& home, std::uint32_t lanes, std::function<void(tcp_forming&)> on_arrival)
    : home_(home), token_{random_number(), random_number()}, on_arrival_(std::move(on_arrival)), lanes_(lanes) {
    SLUICE_EXPECTS(lanes >= 1 && lanes <= lanes_max, "tcp: a connection has 1 to 16 lanes");
    run = [](detail::posted_node& node) noexcept {
        auto& self = static_cast<tcp_forming&>(node);
        {
            const std::lock_guard lock(the_lobby().mutex);
            self.posted_ = false;
        }
        self.on_arrival_(self);
    };
    reserved_[0] = true;
    const std::lock_guard lock(the_lobby().mutex);
    the_lobby().forming.emplace(token_, this);
}

tcp_forming::~tcp_forming() {
    bool posted = false;
    {
        const std::lock_guard lock(the_lobby().mutex);
        the_lobby().forming.erase(token_);
        posted = posted_;
    }
    if (posted) home_.forget(*this);
}

bool tcp_forming::complete() noexcept {
    const std::lock_guard lock(the_lobby().mutex);
    return arrived_ == lanes_;
}

std::vector<detail::unique_fd> tcp_forming::take_sockets() noexcept {
    const std::lock_guard lock(the_lobby().mutex);
    std::vector<detail::unique_fd> all;
    for (std::uint32_t i = 0; i < lanes_; ++i) all.push_back(std::move(sockets_[i]));
    return all;
}

refusal tcp_forming::reserve(const connection_token& token, std::uint32_t lane) {
    const std::lock_guard lock(the_lobby().mutex);
    const auto found = the_lobby().forming.find(token);
    if (found == the_lobby().forming.end()) return refusal::token;
    tcp_forming& f = *found->second;
    if (lane >= f.lanes_ || f.reserved_[lane]) return refusal::lane;
    f.reserved_[lane] = true;
    return refusal::none;
}

void tcp_forming::hand_over(const connection_token& token, std::uint32_t lane, detail::unique_fd socket) {
    const std::lock_guard lock(the_lobby().mutex);
    const auto found = the_lobby().forming.find(token);
    if (found == the_lobby().forming.end()) return;
    tcp_forming& f = *found->second;
    SLUICE_EXPECTS(f.reserved_[lane] && !f.sockets_[lane], "tcp: a lane arrived without a place");
    f.sockets_[lane] = std::move(socket);
    ++f.arrived_;
    // Under the lock, so that it can't go, nor its executor.
    if (!std::exchange(f.posted_, true)) f.home_.post(f);
}

} // namespace sluice::net
