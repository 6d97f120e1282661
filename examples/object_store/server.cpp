#include "examples/object_store/server.hpp"

#include "examples/object_store/key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

namespace store {

namespace {

using sluice::condition;

sluice::task<sluice::result<void>> serve_list(server& s, sluice::connection& client, std::string prefix) {
    const sluice::operation_options patience{.deadline = s.options.stall_timeout};
    listing objects = s.objects.list(std::move(prefix));
    std::uint64_t listed = 0;
    for (;;) {
        auto some = co_await objects.next();
        if (!some) co_return co_await refuse(s, client, std::move(some).error());
        if (some->empty()) break;
        for (const listed_object& object : *some) {
            entry e;
            e.size_bytes = object.header.size_bytes;
            e.modified_ns = object.header.modified_ns;
            e.key_bytes = static_cast<std::uint32_t>(object.key.size()); // check_key saw it: it fits
            std::ranges::copy(object.key, e.key.begin());
            auto sent = co_await client.send(e, patience);
            if (!sent) co_return std::move(sent).error();
        }
        listed += some->size();
    }
    if (auto complete = objects.complete(); !complete) co_return co_await refuse(s, client, std::move(complete).error());
    co_return co_await client.send(reply{.size_bytes = listed}, patience);
}

sluice::task<sluice::result<void>> serve_stat(server& s, sluice::connection& client, std::string key) {
    auto header = co_await s.objects.stat(std::move(key));
    if (!header) co_return co_await refuse(s, client, std::move(header).error());
    const reply answer{
        .crc32c = header->crc32c, .size_bytes = header->size_bytes, .modified_ns = header->modified_ns};
    co_return co_await client.send(answer, {.deadline = s.options.stall_timeout});
}

sluice::task<sluice::result<void>> serve_remove(server& s, sluice::connection& client, std::string key) {
    auto removed = co_await s.objects.remove(std::move(key));
    if (!removed) co_return co_await refuse(s, client, std::move(removed).error());
    co_return co_await client.send(reply{}, {.deadline = s.options.stall_timeout});
}

sluice::task<sluice::result<void>> serve_server(server& s, sluice::connection& client) {
    server_stats now = s.stats;
    const auto pool = s.runtime.pool().occupancy();
    now.pool_bytes = pool.size_bytes;
    now.pool_peak_bytes = pool.peak_bytes;
    now.pool_waits = pool.waits;
    co_return co_await client.send(now, {.deadline = s.options.stall_timeout});
}

/// What the request asks for; an error ends the connection.
sluice::task<sluice::result<void>> answer(server& s, sluice::connection& client, const request& asked) {
    if (asked.magic != protocol_magic)
        co_return co_await refuse(s, client, {sluice::errc::protocol_error, "this is not the object store's protocol"});
    auto text = co_await client.receive<key_text>({.deadline = s.options.stall_timeout});
    if (!text) co_return std::move(text).error();
    std::string key(text->view());
    if (asked.what == verb::list) co_return co_await serve_list(s, client, std::move(key));
    if (asked.what == verb::server) co_return co_await serve_server(s, client);
    if (auto allowed = check_key(key); !allowed)
        co_return co_await refuse(s, client, std::move(allowed).error());
    switch (asked.what) {
    case verb::get: co_return co_await serve_get(s, client, asked, std::move(key));
    case verb::put: co_return co_await serve_put(s, client, asked, std::move(key));
    case verb::stat: co_return co_await serve_stat(s, client, std::move(key));
    case verb::remove: co_return co_await serve_remove(s, client, std::move(key));
    case verb::list:
    case verb::server: break;
    }
    co_return co_await refuse(s, client, {sluice::errc::unsupported, "a request that this server does not know"});
}

sluice::task<sluice::result<void>> turn_away(server& s, sluice::connection& client) {
    auto asked = co_await client.receive<request>({.deadline = s.options.stall_timeout});
    if (!asked) co_return std::move(asked).error();
    auto key = co_await client.receive<key_text>({.deadline = s.options.stall_timeout});
    if (!key) co_return std::move(key).error();
    auto busy = sluice::error::from_errno(
        EAGAIN, fmt::format("the server has {} clients and takes no more (--max-clients, open files); try later", s.options.clients_max));
    co_return co_await refuse(s, client, std::move(busy));
}

/// Not in the coroutine: these counters, with their histograms, would make its frame several times as large.
void count(server_stats& stats, const sluice::connection& client) {
    const sluice::connection_stats moved = client.stats();
    stats.tcp_bytes += moved.read.bytes(sluice::path::tcp) + moved.write.bytes(sluice::path::tcp);
    stats.rdma_bytes += moved.read.bytes(sluice::path::rdma) + moved.write.bytes(sluice::path::rdma);
}

/// One client, from its first request to its last. While it is idle it holds this frame and no memory of the pool.
sluice::task<void> serve_client(server& s, sluice::connection client) {
    ++s.stats.clients;
    ++s.stats.clients_total;
    sluice::result<void> served;
    if (s.stats.clients > s.options.clients_max) served = co_await turn_away(s, client);
    else
        while (served) {
            auto asked = co_await client.receive<request>();
            if (!asked) served = std::move(asked).error();
            else served = co_await answer(s, client, *asked);
        }
    if (!served && served.error() != condition::closed && served.error() != condition::canceled) {
        ++s.stats.failures;
        s.log(fmt::format("client {}: {}", client.peer_address(), served.error().message()));
    }
    count(s.stats, client);
    (void)co_await client.close();
    --s.stats.clients;
}

} // namespace

sluice::result<offered_window> check_window(const server& s, const request& asked, std::uint64_t size_bytes) {
    constexpr std::uint64_t size_bytes_max = std::uint64_t{1} << 50;
    if (asked.chunk_bytes < chunk_unit_bytes || asked.chunk_bytes > chunk_bytes_max ||
        asked.chunk_bytes % chunk_unit_bytes != 0)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("chunks of {} bytes; they must be a multiple of {}, at most {}",
                                         asked.chunk_bytes, chunk_unit_bytes, chunk_bytes_max));
    if (asked.slots < 1 || asked.slots > slots_max)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("a window of {} chunks; 1 to {} are allowed", asked.slots, slots_max));
    if (size_bytes > size_bytes_max)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("an object of {} bytes; at most {} are allowed", size_bytes, size_bytes_max));
    auto region = sluice::remote_region::decode(asked.window);
    if (!region) return std::move(region).error();
    if (std::uint64_t{asked.chunk_bytes} * asked.slots > region->size_bytes)
        return sluice::error(sluice::errc::invalid_argument,
                             fmt::format("a window of {} chunks of {} bytes in shared memory of {} bytes", asked.slots,
                                         asked.chunk_bytes, region->size_bytes));
    return offered_window{*region, layout::fit(size_bytes, std::min(asked.chunk_bytes, s.options.chunk_bytes),
                                               std::min(asked.slots, s.options.slots))};
}

sluice::task<sluice::result<void>> refuse(server& s, sluice::connection& client, sluice::error why) {
    if (why == std::errc::too_many_files_open || why == std::errc::too_many_files_open_in_system)
        why = sluice::error(why.code(), "the server has no descriptors left (its limit of open files); try later");
    co_return co_await client.send(reply::refusal(why), {.deadline = s.options.stall_timeout});
}

sluice::task<sluice::result<void>> give_up(server& s, sluice::connection& client, sluice::error why) {
    if (why == condition::timed_out) {
        const std::chrono::duration<double> patience = s.options.stall_timeout;
        why = sluice::error(why.code(), fmt::format("the client stood still for {} s (--stall-timeout)", patience.count()));
    }
    (void)co_await refuse(s, client, why);
    co_return why;
}

void count(server_stats& stats, const sluice::file_stats& moved) noexcept {
    stats.file_direct_bytes += moved.read.bytes(sluice::path::file_direct) + moved.write.bytes(sluice::path::file_direct);
    stats.file_buffered_bytes +=
        moved.read.bytes(sluice::path::file_buffered) + moved.write.bytes(sluice::path::file_buffered);
}

sluice::task<sluice::result<void>> serve(server& s, std::function<void(const std::string&)> listening) {
    sluice::listen_options options;
    options.connection.message_bytes_max = message_bytes_max;
    // What a client may send without being heard costs memory beyond the pool: a progress per slot, a request, its key.
    options.connection.receive_credits = s.options.slots + 4;
    auto listener = co_await s.runtime.listen(s.options.listen, options);
    if (!listener) co_return std::move(listener).error();
    listening(listener->address().to_string());
    sluice::scope clients;
    sluice::result<void> ended;
    while (ended) {
        auto client = co_await listener->accept();
        if (client) clients.spawn(serve_client(s, std::move(*client)));
        else ended = std::move(client).error();
    }
    clients.request_stop();
    (void)co_await clients.join();
    if (ended.error() == condition::canceled) ended = sluice::result<void>();
    co_return ended;
}

} // namespace store
