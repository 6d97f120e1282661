#include "examples/object_store/server.hpp"

#include "examples/object_store/crc32c.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

// A put: the client says which chunks lie in its window; the server reads them one-sided into its pool, says so (the
// slot is free again), and writes them to a temporary file. The rename at the end is what makes them the object.

namespace store {

namespace {

struct incoming {
    server& s;
    sluice::connection& client;
    pending_object& object;
    sluice::remote_region window;
    store::layout layout;
    sluice::pooled_buffer& memory;
    slot_gates ready; ///< chunks that lie in the client's window
    slot_gates turn;  ///< whose turn it is to be checked: in order
    crc32c sum{};
    std::uint64_t read = 0; ///< chunks read from the client
    std::uint32_t announced_crc32c = 0;
};

/// Checks the chunk, in its turn, and tells the client that its slot is free.
sluice::task<sluice::result<void>> account(incoming& in, std::uint64_t chunk, sluice::region_view data) {
    auto turn = co_await in.turn.wait(chunk);
    if (!turn) co_return std::move(turn).error();
    in.turn.shut(chunk);
    in.sum.add(data.bytes());
    in.read = chunk + 1;
    in.turn.open(chunk + 1);
    const progress consumed{.what = progress::kind::consumed, .chunks = chunk + 1};
    co_return co_await in.client.send(consumed, {.deadline = in.s.options.stall_timeout});
}

sluice::task<sluice::result<void>> move_slot(incoming& in, std::uint64_t first) {
    for (std::uint64_t chunk = first; chunk < in.layout.chunks(); chunk += in.layout.slots) {
        auto ready = co_await in.ready.wait(chunk);
        if (!ready) co_return std::move(ready).error();
        in.ready.shut(chunk);
        const std::uint32_t bytes = in.layout.bytes(chunk);
        const sluice::region_view local = in.memory.subview(in.layout.slot_offset(chunk), in.layout.padded(chunk));
        auto read = co_await in.client.read(in.window.subview(in.layout.slot_offset(chunk), bytes), local.first(bytes),
                                            {.deadline = in.s.options.stall_timeout});
        if (!read) co_return std::move(read).error();
        auto accounted = co_await account(in, chunk, local.first(bytes));
        if (!accounted) co_return std::move(accounted).error();
        std::ranges::fill(local.bytes().subspan(bytes), std::byte{0});
        auto written = co_await in.object.file.write(object_header::block_bytes + in.layout.offset(chunk), local);
        if (!written) co_return std::move(written).error();
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> hear_client(incoming& in) {
    std::uint64_t ready = 0;
    for (;;) {
        auto heard = co_await in.client.receive<progress>({.deadline = in.s.options.stall_timeout});
        if (!heard) co_return std::move(heard).error();
        const std::uint64_t most = std::min(in.layout.chunks(), in.read + in.layout.slots);
        const bool finished = heard->what == progress::kind::finished;
        // Each has to tell of more chunks than the one before: a client that stands still must not look alive.
        const bool grows = heard->chunks > ready || (finished && heard->chunks == ready);
        if (heard->what == progress::kind::consumed || !grows || heard->chunks > most ||
            (finished && heard->chunks != in.layout.chunks()))
            co_return sluice::error(sluice::errc::protocol_error, "put: progress that makes no sense");
        for (; ready < heard->chunks; ++ready) in.ready.open(ready);
        if (finished) {
            in.announced_crc32c = heard->crc32c;
            co_return sluice::result<void>();
        }
    }
}

sluice::task<sluice::result<void>> move_object(incoming& in) {
    sluice::scope pipeline;
    pipeline.spawn(stop_others_on_error(pipeline, hear_client(in)));
    for (std::uint32_t slot = 0; slot < in.layout.slots; ++slot)
        pipeline.spawn(stop_others_on_error(pipeline, move_slot(in, slot)));
    auto moved = co_await pipeline.join();
    if (!moved) co_return std::move(moved).error();
    if (in.sum.value() != in.announced_crc32c)
        co_return sluice::error::from_errno(EIO, fmt::format("damaged on the way: CRC32C {:08x} arrived, {:08x} was sent",
                                                             in.sum.value(), in.announced_crc32c));
    co_return sluice::result<void>();
}

/// Moves the bytes, completes the header and makes the object visible.
sluice::task<sluice::result<object_header>> take_in(incoming& in, std::string key) {
    auto moved = co_await move_object(in);
    if (!moved) co_return std::move(moved).error();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    object_header header;
    header.size_bytes = in.layout.size_bytes;
    header.modified_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
    header.crc32c = in.sum.value();
    const sluice::region_view block = in.memory.first(object_header::block_bytes);
    header.encode(block.bytes());
    auto written = co_await in.object.file.write(0, block);
    if (!written) co_return std::move(written).error();
    auto committed = co_await in.s.objects.commit(in.object, std::move(key));
    if (!committed) co_return std::move(committed).error();
    co_return header;
}

} // namespace

sluice::task<sluice::result<void>> serve_put(server& s, sluice::connection& client, const request& asked, std::string key) {
    auto window = check_window(s, asked, asked.size_bytes);
    if (!window) co_return co_await refuse(s, client, std::move(window).error());
    // All of the pool that this transfer will ever hold, in one piece: nobody waits for memory holding some.
    auto memory = co_await s.runtime.pool().allocate(window->layout.window_bytes());
    if (!memory) co_return co_await refuse(s, client, std::move(memory).error());
    auto object = co_await s.objects.begin(asked.size_bytes);
    if (!object) co_return co_await refuse(s, client, std::move(object).error());

    reply go;
    go.chunk_bytes = window->layout.chunk_bytes;
    go.slots = window->layout.slots;
    auto told = co_await client.send(go, {.deadline = s.options.stall_timeout});
    if (!told) co_return std::move(told).error();

    incoming in{.s = s, .client = client, .object = *object, .window = window->region, .layout = window->layout,
                .memory = *memory, .ready = {window->layout.slots, false}, .turn = {window->layout.slots, false}};
    in.turn.open(0);
    auto taken = co_await take_in(in, std::move(key));
    count(s.stats, object->file.stats());
    if (!taken) co_return co_await give_up(s, client, std::move(taken).error());
    ++s.stats.puts;
    reply safe;
    safe.size_bytes = taken->size_bytes;
    safe.crc32c = taken->crc32c;
    safe.modified_ns = taken->modified_ns;
    co_return co_await client.send(safe, {.deadline = s.options.stall_timeout});
}

} // namespace store
