#include "examples/object_store/client.hpp"

#include "examples/object_store/crc32c.hpp"

#include <sluice/file.hpp>
#include <sluice/file_system.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <utility>

namespace store {

struct client::upload {
    client& c;
    sluice::file& file;
    layout shape;
    const transfer_watch& watch;
    slot_gates free; ///< the server has read what was there
    slot_gates turn; ///< whose turn it is to be announced: in order
    crc32c sum{};
    reply end{};
};

sluice::task<sluice::result<void>> client::load_slot(upload& u, std::uint64_t first) {
    for (std::uint64_t chunk = first; chunk < u.shape.chunks(); chunk += u.shape.slots) {
        auto free = co_await u.free.wait(chunk);
        if (!free) co_return std::move(free).error();
        u.free.shut(chunk);
        const std::uint32_t bytes = u.shape.bytes(chunk);
        const sluice::region_view slot = u.c.window_.subview(u.shape.slot_offset(chunk), u.shape.padded(chunk));
        auto read = co_await u.file.read(u.shape.offset(chunk), slot);
        if (!read) co_return std::move(read).error();
        if (*read < bytes)
            co_return sluice::error(sluice::errc::end_of_file,
                                    fmt::format("{} became shorter while it was read", u.file.path()));
        auto turn = co_await u.turn.wait(chunk);
        if (!turn) co_return std::move(turn).error();
        u.turn.shut(chunk);
        u.sum.add(slot.first(bytes).bytes());
        u.turn.open(chunk + 1);
        progress now{.what = progress::kind::ready, .chunks = chunk + 1};
        if (now.chunks == u.shape.chunks()) now = {progress::kind::finished, u.sum.value(), now.chunks};
        auto told = co_await u.c.connection_.send(now, {.deadline = u.c.options_.timeout});
        if (!told) co_return u.c.gone(std::move(told).error());
    }
    co_return sluice::result<void>();
}

/// Frees slots until the server has the last word.
sluice::task<sluice::result<void>> client::hear_server(upload& u) {
    for (std::uint64_t consumed = 0;;) {
        auto got = co_await u.c.hear();
        if (!got) co_return std::move(got).error();
        if (got->size_bytes == sizeof(reply)) {
            auto end = u.c.heard<reply>(*got);
            if (!end) co_return std::move(end).error();
            u.end = *end;
            co_return sluice::result<void>();
        }
        auto now = u.c.heard<progress>(*got);
        if (!now) co_return std::move(now).error();
        if (now->what != progress::kind::consumed || now->chunks <= consumed || now->chunks > u.shape.chunks())
            co_return sluice::error(sluice::errc::protocol_error, "the server reports progress that makes no sense");
        for (; consumed < now->chunks; ++consumed) {
            if (u.watch.moved) u.watch.moved(u.shape.bytes(consumed));
            u.free.open(consumed);
        }
    }
}

sluice::task<sluice::result<object_info>> client::upload_from(sluice::file& file, layout shape,
                                                              const transfer_watch& watch) {
    upload u{.c = *this, .file = file, .shape = shape, .watch = watch, .free = {shape.slots, true},
             .turn = {shape.slots, false}};
    u.turn.open(0);
    sluice::scope pipeline;
    pipeline.spawn(stop_others_on_error(pipeline, hear_server(u)));
    for (std::uint32_t slot = 0; slot < shape.slots; ++slot)
        pipeline.spawn(stop_others_on_error(pipeline, load_slot(u, slot)));
    sluice::result<void> told;
    if (shape.chunks() == 0) {
        const progress nothing{.what = progress::kind::finished, .crc32c = u.sum.value()};
        told = co_await connection_.send(nothing, {.deadline = options_.timeout});
        if (!told) pipeline.request_stop();
    }
    auto moved = co_await pipeline.join();
    count(file.stats());
    if (!told) co_return gone(std::move(told).error());
    if (!moved) co_return std::move(moved).error();
    usable_ = true;
    co_return object_info{.key = {}, .size_bytes = u.end.size_bytes, .modified_ns = u.end.modified_ns, .crc32c = u.end.crc32c};
}

sluice::task<sluice::result<object_info>> client::put(std::string file, std::string key, transfer_watch watch) {
    auto status = co_await sluice::stat(file);
    if (!status) co_return std::move(status).error();
    if (status->type != sluice::file_type::regular)
        co_return sluice::error(sluice::errc::invalid_argument, fmt::format("{} is not a regular file", file));
    const std::uint64_t size_bytes = status->size_bytes;
    const sluice::open_options how{.direct = size_bytes >= options_.direct_from_bytes};
    auto source = co_await sluice::file::open(std::move(file), how);
    if (!source) co_return std::move(source).error();
    if (size_bytes == 0) {
        std::byte more{};
        auto read = co_await source->read(0, std::span(&more, 1));
        if (!read) co_return std::move(read).error();
        if (*read != 0)
            co_return sluice::error(sluice::errc::invalid_argument,
                                    fmt::format("{} says that it is empty and is not, as files of /proc do; put a copy of it",
                                                source->path()));
    }
    auto shared = co_await share_window();
    if (!shared) co_return std::move(shared).error();

    request wish = new_request(verb::put);
    wish.size_bytes = size_bytes;
    auto asked = co_await ask(wish, key_text(key));
    if (!asked) co_return std::move(asked).error();
    auto got = co_await hear();
    if (!got) co_return std::move(got).error();
    auto go = heard<reply>(*got);
    if (!go) co_return std::move(go).error();
    usable_ = false; // until the server has the last word
    auto shape = agreed_layout(*go, size_bytes);
    if (!shape) co_return std::move(shape).error();
    if (watch.expected) watch.expected(size_bytes);
    auto done = co_await upload_from(*source, *shape, watch);
    if (done) done->key = std::move(key);
    co_return done;
}

} // namespace store
