#include "net/tcp_listener.hpp"

#include "net/endpoint.hpp"
#include "net/resolve.hpp"
#include "net/tcp_handshake.hpp"
#include "runtime/log.hpp"

#include <algorithm>
#include <string>
#include <unistd.h>
#include <utility>

namespace sluice::net {

using namespace std::chrono_literals;

tcp_listener::tcp_listener(executor& home, stream_socket socket, sluice::address address, listen_options options,
                           detail::provider_setup setup)
    : home_(home), socket_(std::move(socket)), address_(std::move(address)), options_(std::move(options)),
      setup_(std::move(setup)) {
    timer_.owner = this;
    timer_.fire = &tcp_listener::on_timer;
    acceptor_ = accept_loop();
    acceptor_.start(home_);
}

tcp_listener::~tcp_listener() { tcp_listener::close(); }

void tcp_listener::close() noexcept {
    if (std::exchange(closed_, true)) return;
    if (timer_.linked) home_.remove_timer(timer_);
    acceptor_.end(home_);
    receptions_.clear();
    forming_.clear();
    ready_.clear();
    socket_.close();
    if (address_.unix_path.starts_with('/')) static_cast<void>(::unlink(address_.unix_path.c_str()));
    arrived_.set();
}

task<result<std::unique_ptr<detail::provider_connection>>> tcp_listener::accept() {
    for (;;) {
        if (closed_) co_return error(errc::closed, "accept on " + address_.to_string() + ": the listener was closed");
        if (!ready_.empty()) {
            auto connection = std::move(ready_.front());
            ready_.pop_front();
            note_end();
            co_return std::move(connection);
        }
        arrived_.reset();
        auto waited = co_await arrived_.wait();
        if (!waited) co_return std::move(waited).error();
    }
}

background tcp_listener::accept_loop() {
    constexpr auto shortest = 5ms;
    constexpr auto longest = 250ms;
    std::chrono::milliseconds delay = shortest;
    for (;;) {
        sweep();
        if (pending() >= options_.backlog) {
            pause(longest);
            co_await resume_.wait();
            continue;
        }
        const int fd = co_await accept_request(socket_.state());
        if (fd < 0) {
            // Descriptors or memory have run out. The backlog stays readable, so asking again at once would spin.
            if (!std::exchange(told_shortage_, true))
                SLUICE_LOG(warning, "accept on ", address_.to_string(), ": ", error::from_errno(-fd).message(),
                           "; who connects waits until others have gone; raise the limit of open files (ulimit -n); ",
                           "said once");
            pause(delay);
            co_await resume_.wait();
            delay = std::min<std::chrono::milliseconds>(delay * 2, longest);
            continue;
        }
        delay = shortest;
        auto socket = stream_socket::adopt(fd);
        if (!prepare(socket, options_.connection)) { // reset meanwhile
            reject();
            continue;
        }
        receptions_.push_back(std::make_unique<tcp_reception>(*this, home_, std::move(socket)));
        receptions_.back()->start(options_.connection.connect_timeout);
    }
}

void tcp_listener::pause(std::chrono::nanoseconds at_most) noexcept {
    pausing_ = true;
    timer_.deadline = detail::deadline_after(at_most);
    home_.add_timer(timer_);
}

void tcp_listener::on_timer(detail::timer_node& node) noexcept {
    tcp_listener& self = *static_cast<timer&>(node).owner;
    self.pausing_ = false;
    self.resume_.nudge();
}

void tcp_listener::note_end() noexcept {
    if (!pausing_ || closed_) return;
    home_.remove_timer(timer_);
    on_timer(timer_);
}

/// Lets go of what has ended, and of connections whose further lanes do not come.
void tcp_listener::sweep() noexcept {
    std::erase_if(receptions_, [](const auto& r) { return r->done(); });
    const auto now = std::chrono::steady_clock::now();
    rejected_ += std::erase_if(forming_, [now](const forming& f) { return f.until <= now; });
}

std::optional<greeting> tcp_listener::judge(const greeting& theirs) {
    greeting answer;
    answer.owner = setup_.owner;
    answer.kind = greeting_kind::refused;
    if (!common_version(theirs)) {
        answer.reason = refusal::version;
        return answer;
    }
    if (theirs.kind == greeting_kind::attach) {
        answer.reason = tcp_forming::reserve(theirs.token, theirs.lane);
        if (answer.reason == refusal::none) answer.kind = greeting_kind::welcome;
        answer.token = theirs.token;
        return answer;
    }
    if (theirs.kind != greeting_kind::hello) return std::nullopt;
    auto agreed = meet(theirs, options_.connection);
    if (!agreed) return std::nullopt;
    agreed->owner = setup_.owner;
    if (agreed->lanes > 1) {
        auto lanes = std::make_unique<tcp_forming>(home_, agreed->lanes, [this](tcp_forming& f) { arrived(f); });
        agreed->token = lanes->token();
        forming_.push_back({.lanes = std::move(lanes),
                            .agreed = *agreed,
                            .peer = theirs.owner,
                            .until = detail::deadline_after(options_.connection.connect_timeout)});
    }
    return *agreed;
}

void tcp_listener::admit(stream_socket& socket, const greeting& theirs, const greeting& answer) {
    if (theirs.kind == greeting_kind::hello && answer.lanes == 1) {
        std::vector<detail::unique_fd> sockets;
        sockets.push_back(release(socket));
        finish(answer, theirs.owner, std::move(sockets));
        return;
    }
    tcp_forming::hand_over(answer.token, theirs.kind == greeting_kind::hello ? 0 : theirs.lane, release(socket));
}

void tcp_listener::arrived(tcp_forming& f) {
    if (!f.complete()) return;
    const auto found = std::find_if(forming_.begin(), forming_.end(), [&](const forming& each) { return each.lanes.get() == &f; });
    SLUICE_EXPECTS(found != forming_.end(), "tcp: a connection was formed twice");
    const forming done = std::move(*found);
    forming_.erase(found);
    finish(done.agreed, done.peer, done.lanes->take_sockets());
}

void tcp_listener::finish(const greeting& agreed, std::uint64_t peer, std::vector<detail::unique_fd> sockets) {
    tcp_terms terms = terms_of(agreed, peer, setup_, sockets.front().get());
    ready_.push_back(std::make_unique<tcp_connection>(home_, options_.connection, std::move(terms), std::move(sockets)));
    arrived_.set();
}

task<result<std::unique_ptr<detail::provider_listener>>> tcp_listen(address on, listen_options options,
                                                                    detail::provider_setup setup) {
    const scheme asked = on.scheme;
    auto endpoints = co_await resolve(std::move(on));
    if (!endpoints) co_return std::move(endpoints).error();
    executor& home = co_await this_executor();
    error last(errc::invalid_address);
    for (const endpoint& e : *endpoints) {
        auto socket = listening_socket(e, {.backlog = options.backlog, .reuse_port = options.reuse_port, .accepted = {}});
        if (!socket) {
            last = std::move(socket).error();
            continue;
        }
        auto bound = local_endpoint(socket->fd());
        if (!bound) co_return std::move(bound).error();
        co_return std::make_unique<tcp_listener>(home, std::move(*socket), bound->to_address(asked), std::move(options),
                                                 std::move(setup));
    }
    co_return last;
}

} // namespace sluice::net
