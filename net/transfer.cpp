#include <sluice/transfer.hpp>

#include <sluice/scope.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace sluice {

namespace {

constexpr std::size_t chunk_min = 4096;
constexpr std::size_t chunk_max = std::size_t{1} << 30;
constexpr std::uint32_t window_max = 1024;

/// One transfer: chunk i goes through slot i % slots, and each slot has a task that takes its chunks one after another.
struct pipeline {
    file& disk;
    connection& peer;
    file_range range;
    remote_view remote;
    std::size_t chunk;
    operation_options options;
    pooled_buffer memory;
    std::uint64_t slots = 0;
    scope workers;

    std::uint64_t chunks() const noexcept { return range.size / chunk + (range.size % chunk != 0); }
    std::size_t bytes(std::uint64_t index) const noexcept {
        return static_cast<std::size_t>(std::min<std::uint64_t>(chunk, range.size - index * chunk));
    }
    remote_view at_peer(std::uint64_t index) const noexcept { return remote.subview(index * chunk, bytes(index)); }
    region_view at_home(std::uint64_t index) const noexcept {
        return memory.subview(static_cast<std::size_t>(index % slots) * chunk, bytes(index));
    }
};

using mover = task<result<void>> (*)(pipeline&, std::uint64_t);

task<result<void>> disk_to_peer(pipeline& p, std::uint64_t index) {
    auto read = co_await p.disk.read_exact(p.range.offset + index * p.chunk, p.at_home(index));
    if (!read) co_return std::move(read).error();
    co_return co_await p.peer.write(p.at_peer(index), p.at_home(index), p.options);
}

task<result<void>> peer_to_disk(pipeline& p, std::uint64_t index) {
    auto read = co_await p.peer.read(p.at_peer(index), p.at_home(index), p.options);
    if (!read) co_return std::move(read).error();
    co_return co_await p.disk.write(p.range.offset + index * p.chunk, p.at_home(index));
}

/// The chunks of one slot; a failure stops the other slots.
task<result<void>> work(pipeline& p, mover move, std::uint64_t slot) {
    for (std::uint64_t index = slot; index < p.chunks(); index += p.slots) {
        auto moved = co_await move(p, index);
        if (moved) continue;
        p.workers.request_stop();
        co_return moved;
    }
    co_return result<void>();
}

error wrong_option(const char* name, std::uint64_t value, const char* allowed) {
    return {errc::invalid_argument,
            std::string("transfer_options.") + name + " = " + std::to_string(value) + ", allowed is " + allowed};
}

task<result<void>> run(file& disk, file_range range, connection& peer, remote_view remote, transfer_options options,
                       mover move) {
    SLUICE_EXPECTS(range.size == remote.size_bytes(), "transfer: the sizes of the file range and the remote view differ");
    if (options.chunk < chunk_min || options.chunk > chunk_max)
        co_return wrong_option("chunk", options.chunk, "4096 bytes to 1 GiB");
    if (options.window < 1 || options.window > window_max) co_return wrong_option("window", options.window, "1 to 1024");
    if (range.size == 0) co_return result<void>();
    executor& home = co_await this_executor();
    memory_pool* pool = options.pool != nullptr ? options.pool : home.pool();
    SLUICE_EXPECTS(pool != nullptr, "transfer: its executor belongs to no runtime, so transfer_options.pool must be set");

    pipeline p{.disk = disk, .peer = peer, .range = range, .remote = remote, .chunk = options.chunk,
               .options = {.deadline = options.deadline}, .memory = {}, .slots = 0, .workers = {}};
    p.slots = std::min<std::uint64_t>(options.window, p.chunks());
    const std::uint64_t memory_bytes = std::min(p.slots * p.chunk, range.size); // one chunk may be a short one
    auto memory = co_await pool->allocate(static_cast<std::size_t>(memory_bytes));
    if (!memory) co_return std::move(memory).error();
    p.memory = std::move(*memory);
    for (std::uint64_t slot = 0; slot < p.slots; ++slot) p.workers.spawn(work(p, move, slot));
    co_return co_await p.workers.join();
}

} // namespace

task<result<void>> transfer(file& from, file_range range, connection& conn, remote_view to, transfer_options options) {
    return run(from, range, conn, to, options, &disk_to_peer);
}

task<result<void>> transfer(connection& conn, remote_view from, file& to, file_range range, transfer_options options) {
    return run(to, range, conn, from, options, &peer_to_disk);
}

} // namespace sluice
