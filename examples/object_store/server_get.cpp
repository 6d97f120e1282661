#include "examples/object_store/server.hpp"

#include <algorithm>
#include <string>
#include <utility>

// A get: the server reads chunks from its disk into a window of its pool and writes each one-sided into the same slot of
// the client's window, with the chunk's number as the immediate. The client says how far it has got, which frees slots.

namespace store {

namespace {

struct outgoing {
    server& s;
    sluice::connection& client;
    open_object& object;
    sluice::remote_region window;
    store::layout layout;
    sluice::pooled_buffer& memory;
    slot_gates free; ///< slots of the client
    std::uint64_t begun = 0; ///< chunks on their way, or there
};

sluice::task<sluice::result<void>> move_slot(outgoing& o, std::uint64_t first) {
    for (std::uint64_t chunk = first; chunk < o.layout.chunks(); chunk += o.layout.slots) {
        const sluice::region_view local = o.memory.subview(o.layout.slot_offset(chunk), o.layout.padded(chunk));
        auto read = co_await o.object.file.read_exact(object_header::block_bytes + o.layout.offset(chunk), local);
        if (!read) co_return std::move(read).error();
        auto free = co_await o.free.wait(chunk);
        if (!free) co_return std::move(free).error();
        o.free.shut(chunk);
        ++o.begun;
        const std::uint32_t bytes = o.layout.bytes(chunk);
        auto written = co_await o.client.write_with_immediate(o.window.subview(o.layout.slot_offset(chunk), bytes),
                                                              local.first(bytes), static_cast<std::uint32_t>(chunk),
                                                              {.deadline = o.s.options.stall_timeout});
        if (!written) co_return std::move(written).error();
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> hear_client(outgoing& o) {
    std::uint64_t consumed = 0;
    while (consumed < o.layout.chunks()) {
        auto heard = co_await o.client.receive<progress>({.deadline = o.s.options.stall_timeout});
        if (!heard) co_return std::move(heard).error();
        // Each has to tell of more chunks than the one before: a client that stands still must not look alive.
        if (heard->what != progress::kind::consumed || heard->chunks <= consumed || heard->chunks > o.begun)
            co_return sluice::error(sluice::errc::protocol_error, "get: progress that makes no sense");
        for (; consumed < heard->chunks; ++consumed) o.free.open(consumed);
    }
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> move_object(outgoing& o) {
    sluice::scope pipeline;
    pipeline.spawn(stop_others_on_error(pipeline, hear_client(o)));
    for (std::uint32_t slot = 0; slot < o.layout.slots; ++slot)
        pipeline.spawn(stop_others_on_error(pipeline, move_slot(o, slot)));
    co_return co_await pipeline.join();
}

sluice::task<sluice::result<object_header>> read_header(open_object& object, sluice::region_view block,
                                                        std::string key) {
    if (object.file_bytes >= block.size_bytes()) {
        auto read = co_await object.file.read_exact(0, block);
        if (!read) co_return std::move(read).error();
    }
    const std::size_t there = object.file_bytes >= block.size_bytes() ? block.size_bytes() : 0;
    co_return object_header::decode(block.bytes().first(there), object.file_bytes, key);
}

} // namespace

sluice::task<sluice::result<void>> serve_get(server& s, sluice::connection& client, const request& asked, std::string key) {
    auto file_bytes = co_await s.objects.file_bytes(key);
    if (!file_bytes) co_return co_await refuse(s, client, std::move(file_bytes).error());
    const std::uint64_t data_bytes = *file_bytes - std::min<std::uint64_t>(*file_bytes, object_header::block_bytes);
    auto window = check_window(s, asked, data_bytes);
    if (!window) co_return co_await refuse(s, client, std::move(window).error());

    // All of the pool that this transfer will ever hold, in one piece: nobody waits for memory holding some.
    auto memory = co_await s.runtime.pool().allocate(window->layout.window_bytes());
    if (!memory) co_return co_await refuse(s, client, std::move(memory).error());
    auto object = co_await s.objects.find(key); // those who wait for memory hold no descriptor but their socket
    if (!object) co_return co_await refuse(s, client, std::move(object).error());
    auto header = co_await read_header(*object, memory->first(object_header::block_bytes), key);
    if (!header) co_return co_await refuse(s, client, std::move(header).error());
    window->layout.size_bytes = header->size_bytes; // any size fits this window, also that of an object put meanwhile

    reply answer;
    answer.size_bytes = header->size_bytes;
    answer.crc32c = header->crc32c;
    answer.modified_ns = header->modified_ns;
    answer.chunk_bytes = window->layout.chunk_bytes;
    answer.slots = window->layout.slots;
    auto told = co_await client.send(answer, {.deadline = s.options.stall_timeout});
    if (!told) co_return std::move(told).error();

    outgoing o{s, client, *object, window->region, window->layout, *memory, {window->layout.slots, true}};
    auto moved = co_await move_object(o);
    count(s.stats, object->file.stats());
    if (!moved) co_return co_await give_up(s, client, std::move(moved).error());
    ++s.stats.gets;
    co_return sluice::result<void>();
}

} // namespace store
