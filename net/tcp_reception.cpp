#include "net/tcp_reception.hpp"

#include "net/tcp_listener.hpp"

#include <optional>
#include <span>
#include <utility>

namespace sluice::net {

tcp_reception::tcp_reception(tcp_listener& listener, executor& home, stream_socket socket)
    : listener_(listener), home_(home), socket_(std::move(socket)) {
    timer_.owner = this;
    timer_.fire = &tcp_reception::on_deadline;
}

tcp_reception::~tcp_reception() {
    if (timer_.linked) home_.remove_timer(timer_);
    loop_.end(home_);
}

void tcp_reception::start(std::chrono::nanoseconds limit) noexcept {
    timer_.deadline = detail::deadline_after(limit);
    home_.add_timer(timer_);
    loop_ = run();
    loop_.start(home_);
}

void tcp_reception::on_deadline(detail::timer_node& node) noexcept {
    tcp_reception& self = *static_cast<timer&>(node).owner;
    self.expired_ = true;
    if (self.waits_for_ != nullptr) self.waits_for_->abandon(self.home_);
}

background tcp_reception::run() {
    std::size_t have = 0;
    bool fine = true;
    while (fine && have < bytes_.size()) {
        auto receiving = socket_.read_some(std::span(bytes_).subspan(have));
        waits_for_ = &receiving;
        const auto got = co_await receiving;
        waits_for_ = nullptr;
        fine = got && *got != 0 && !expired_;
        if (fine) have += *got;
        if (fine) fine = check_greeting_start({bytes_.data(), have}).has_value();
    }
    std::optional<greeting> theirs;
    if (fine) {
        auto decoded = decode_greeting(bytes_);
        if (decoded) theirs = *decoded;
    }
    std::optional<greeting> answer;
    if (theirs) answer = listener_.judge(*theirs);
    bool taken = false;
    if (answer) {
        const auto bytes = encode(*answer);
        auto sending = socket_.write_all(bytes);
        waits_for_ = &sending;
        const auto sent = co_await sending;
        waits_for_ = nullptr;
        taken = sent && !expired_ && answer->kind == greeting_kind::welcome;
    }
    if (timer_.linked) home_.remove_timer(timer_);
    if (taken) {
        listener_.admit(socket_, *theirs, *answer);
    } else {
        listener_.reject();
        socket_.close(); // now, not when the listener next has occasion to sweep
    }
    done_ = true;
    listener_.note_end();
}

} // namespace sluice::net
