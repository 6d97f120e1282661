#include "examples/object_store/client.hpp"

#include <sluice/timeout.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace store {

namespace {

constexpr std::size_t inbox_bytes = 4096;
static_assert(inbox_bytes >= message_bytes_max);

object_info info_of(std::string key, const reply& answer) {
    return {.key = std::move(key),
            .size_bytes = answer.size_bytes,
            .modified_ns = answer.modified_ns,
            .crc32c = answer.crc32c};
}

} // namespace

sluice::task<sluice::result<client>> client::open(sluice::runtime& runtime, std::string server, client_options options) {
    client c;
    c.runtime_ = &runtime;
    c.options_ = options;
    c.server_ = server;
    auto inbox = co_await runtime.pool().allocate(inbox_bytes);
    if (!inbox) co_return std::move(inbox).error();
    c.inbox_ = std::move(*inbox);
    sluice::connection_options wishes;
    wishes.message_bytes_max = message_bytes_max;
    wishes.connect_timeout = options.timeout;
    constexpr std::chrono::nanoseconds least = std::chrono::seconds(1); // that the library takes
    wishes.peer_timeout = std::max(least, std::min(options.timeout, wishes.peer_timeout));
    auto connection = co_await runtime.connect(std::move(server), wishes);
    if (!connection) co_return std::move(connection).error();
    c.connection_ = std::move(*connection);
    co_return std::move(c);
}

sluice::task<sluice::result<void>> client::share_window() {
    if (shared_) co_return sluice::result<void>();
    auto window = co_await runtime_->pool().allocate(std::size_t{options_.chunk_bytes} * options_.slots);
    if (!window) co_return std::move(window).error();
    window_ = std::move(*window);
    auto shared = co_await connection_.share(window_, sluice::access::remote_read | sluice::access::remote_write);
    if (!shared) co_return gone(std::move(shared).error());
    shared_ = std::move(*shared);
    co_return sluice::result<void>();
}

request client::new_request(verb what) const noexcept {
    request r;
    r.what = what;
    if (shared_) {
        r.window = shared_.description().encode();
        r.chunk_bytes = options_.chunk_bytes;
        r.slots = options_.slots;
    }
    return r;
}

sluice::task<sluice::result<void>> client::ask(request what, key_text key) {
    auto sent = co_await connection_.send(what, {.deadline = options_.timeout});
    if (sent) sent = co_await connection_.send(key, {.deadline = options_.timeout});
    if (!sent) co_return gone(std::move(sent).error());
    co_return sluice::result<void>();
}

sluice::task<sluice::result<sluice::received>> client::hear() {
    auto got = co_await connection_.receive(inbox_, {.deadline = options_.timeout});
    if (!got) co_return gone(std::move(got).error());
    co_return std::move(got);
}

sluice::error client::gone(sluice::error why) const {
    if (why == sluice::condition::canceled) return why;
    if (why == sluice::condition::timed_out) {
        const std::chrono::duration<double> seconds = options_.timeout;
        return {why.code(), fmt::format("the server {} gave no sign for {} s (--timeout)", server_, seconds.count())};
    }
    return {why.code(), fmt::format("the server {} is gone", server_)};
}

sluice::result<layout> client::agreed_layout(const reply& answer, std::uint64_t size_bytes) const {
    if (answer.chunk_bytes < chunk_unit_bytes || answer.chunk_bytes % chunk_unit_bytes != 0 ||
        answer.chunk_bytes > options_.chunk_bytes || answer.slots < 1 || answer.slots > options_.slots)
        return sluice::error(sluice::errc::protocol_error,
                             fmt::format("the server wants {} chunks of {} bytes, offered were {} of {}", answer.slots,
                                         answer.chunk_bytes, options_.slots, options_.chunk_bytes));
    return layout{.size_bytes = size_bytes, .chunk_bytes = answer.chunk_bytes, .slots = answer.slots};
}

void client::count(const sluice::file_stats& moved) noexcept {
    file_direct_bytes_ += moved.read.bytes(sluice::path::file_direct) + moved.write.bytes(sluice::path::file_direct);
    file_buffered_bytes_ += moved.read.bytes(sluice::path::file_buffered) + moved.write.bytes(sluice::path::file_buffered);
}

sluice::task<sluice::result<object_info>> client::stat(std::string key) {
    auto asked = co_await ask(new_request(verb::stat), key_text(key));
    if (!asked) co_return std::move(asked).error();
    auto got = co_await hear();
    if (!got) co_return std::move(got).error();
    auto answer = heard<reply>(*got);
    if (!answer) co_return std::move(answer).error();
    co_return info_of(std::move(key), *answer);
}

sluice::task<sluice::result<void>> client::remove(std::string key) {
    auto asked = co_await ask(new_request(verb::remove), key_text(key));
    if (!asked) co_return std::move(asked).error();
    auto got = co_await hear();
    if (!got) co_return std::move(got).error();
    auto answer = heard<reply>(*got);
    if (!answer) co_return std::move(answer).error();
    co_return sluice::result<void>();
}

sluice::task<sluice::result<object_list>> client::list(std::string prefix) {
    auto asked = co_await ask(new_request(verb::list), key_text(prefix));
    if (!asked) co_return std::move(asked).error();
    object_list found;
    for (;;) {
        auto got = co_await hear();
        if (!got) co_return std::move(got).error();
        if (got->size_bytes == sizeof(reply)) {
            auto end = heard<reply>(*got);
            if (!end) found.complete = std::move(end).error();
            std::ranges::sort(found.objects, {}, &object_info::key);
            co_return std::move(found);
        }
        auto one = heard<entry>(*got);
        if (!one) co_return std::move(one).error();
        found.objects.push_back({.key = std::string(one->key_view()),
                         .size_bytes = one->size_bytes,
                         .modified_ns = one->modified_ns});
    }
}

sluice::task<sluice::result<server_stats>> client::server() {
    auto asked = co_await ask(new_request(verb::server), key_text());
    if (!asked) co_return std::move(asked).error();
    auto got = co_await hear();
    if (!got) co_return std::move(got).error();
    co_return heard<server_stats>(*got);
}

sluice::task<sluice::result<void>> client::close() {
    shared_.revoke();
    co_return co_await sluice::timeout(options_.timeout, connection_.close());
}

} // namespace store
