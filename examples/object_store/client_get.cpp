#include "examples/object_store/client.hpp"

#include "examples/object_store/crc32c.hpp"
#include "examples/object_store/local_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace store {

struct client::download {
    client& c;
    sluice::file& file;
    layout shape;
    const transfer_watch& watch;
    slot_gates arrived;       ///< checked, to be written
    std::vector<bool> stored; ///< by slot, of those not yet counted in `consumed`
    std::uint64_t consumed = 0;
    crc32c sum{};

    sluice::region_view slot(std::uint64_t chunk, std::uint32_t bytes) const noexcept {
        return c.window_.subview(shape.slot_offset(chunk), bytes);
    }
};

/// Chunks may arrive in another order than they are numbered, within the window; they are checked in order.
sluice::task<sluice::result<void>> client::take_chunks(download& d) {
    std::vector<bool> here(d.shape.slots);
    for (std::uint64_t next = 0; next < d.shape.chunks();) {
        auto got = co_await d.c.hear();
        if (!got) co_return std::move(got).error();
        if (!got->immediate) { // it gives up
            auto why = d.c.heard<reply>(*got);
            if (!why) co_return std::move(why).error();
            co_return sluice::error(sluice::errc::protocol_error, "the server sent an answer instead of a chunk");
        }
        const std::uint32_t ahead = *got->immediate - static_cast<std::uint32_t>(next); // both modulo 2^32
        if (ahead >= d.shape.slots || next + ahead >= d.shape.chunks() || here[(next + ahead) % d.shape.slots])
            co_return sluice::error(sluice::errc::protocol_error,
                                    fmt::format("chunk {} arrived while {} was awaited", *got->immediate, next));
        here[(next + ahead) % d.shape.slots] = true;
        for (; next < d.shape.chunks() && here[next % d.shape.slots]; ++next) {
            here[next % d.shape.slots] = false;
            d.sum.add(d.slot(next, d.shape.bytes(next)).bytes());
            d.arrived.open(next);
        }
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> client::store_slot(download& d, std::uint64_t first) {
    for (std::uint64_t chunk = first; chunk < d.shape.chunks(); chunk += d.shape.slots) {
        auto arrived = co_await d.arrived.wait(chunk);
        if (!arrived) co_return std::move(arrived).error();
        d.arrived.shut(chunk);
        // The file is cut to its size at the end, so that its last part can go past the page cache too.
        const std::uint32_t bytes = d.file.is_direct() ? d.shape.padded(chunk) : d.shape.bytes(chunk);
        auto written = co_await d.file.write(d.shape.offset(chunk), d.slot(chunk, bytes));
        if (!written) co_return std::move(written).error();
        if (d.watch.moved) d.watch.moved(d.shape.bytes(chunk));
        d.stored[chunk % d.shape.slots] = true;
        const std::uint64_t before = d.consumed;
        for (; d.stored[d.consumed % d.shape.slots]; ++d.consumed) d.stored[d.consumed % d.shape.slots] = false;
        if (d.consumed == before) continue;
        const progress consumed{.what = progress::kind::consumed, .chunks = d.consumed};
        auto told = co_await d.c.connection_.send(consumed, {.deadline = d.c.options_.timeout});
        if (!told) co_return d.c.gone(std::move(told).error());
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> client::download_to(sluice::file& file, const reply& answer, layout shape,
                                                       const transfer_watch& watch) {
    download d{.c = *this, .file = file, .shape = shape, .watch = watch, .arrived = {shape.slots, false},
               .stored = std::vector<bool>(shape.slots)};
    sluice::scope pipeline;
    pipeline.spawn(stop_others_on_error(pipeline, take_chunks(d)));
    for (std::uint32_t slot = 0; slot < shape.slots; ++slot)
        pipeline.spawn(stop_others_on_error(pipeline, store_slot(d, slot)));
    auto moved = co_await pipeline.join();
    count(file.stats());
    if (!moved) co_return std::move(moved).error();
    usable_ = true;
    if (d.sum.value() != answer.crc32c)
        co_return sluice::error::from_errno(
            EIO, fmt::format("corrupt object: the CRC32C of its bytes is {:08x}, it was {:08x} when it was put",
                             d.sum.value(), answer.crc32c));
    co_return sluice::result<void>();
}

sluice::task<sluice::result<object_info>> client::get(std::string key, std::string file, transfer_watch watch) {
    auto shared = co_await share_window();
    if (!shared) co_return std::move(shared).error();
    auto asked = co_await ask(new_request(verb::get), key_text(key));
    if (!asked) co_return std::move(asked).error();
    auto got = co_await hear();
    if (!got) co_return std::move(got).error();
    auto answer = heard<reply>(*got);
    if (!answer) co_return std::move(answer).error();
    usable_ = false; // until all of it is here: the server is sending
    auto shape = agreed_layout(*answer, answer->size_bytes);
    if (!shape) co_return std::move(shape).error();
    if (watch.expected) watch.expected(answer->size_bytes);

    auto target =
        co_await local_file::create(std::move(file), answer->size_bytes, answer->size_bytes >= options_.direct_from_bytes);
    if (!target) co_return std::move(target).error();
    auto moved = co_await download_to(target->file, *answer, *shape, watch);
    if (!moved) co_return std::move(moved).error();
    auto finished = co_await target->finish();
    if (!finished) co_return std::move(finished).error();
    co_return object_info{.key = std::move(key),
                          .size_bytes = answer->size_bytes,
                          .modified_ns = answer->modified_ns,
                          .crc32c = answer->crc32c};
}

} // namespace store
