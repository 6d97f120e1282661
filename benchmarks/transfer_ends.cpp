#include "benchmarks/transfer_ends.hpp"

#include <sluice/scope.hpp>

namespace sluice::bench {

std::string text_of_size(std::size_t bytes) {
    if (bytes >= (1U << 20) && bytes % (1U << 20) == 0) return fmt::format("{}MiB", bytes >> 20);
    if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{}KiB", bytes >> 10);
    return fmt::format("{}B", bytes);
}

// ---- the serving end ----

sharing_server::sharing_server(runtime& rt, std::uint32_t executor_index, std::string listen_on,
                               std::size_t memory_bytes)
    : runtime_(rt), memory_bytes_(memory_bytes) {
    listener_ = rt.sync_wait(start(rt, std::move(listen_on)), executor_index);
    thread_ = std::thread([this, executor_index] { runtime_.sync_wait(serve(*this), executor_index); });
}

task<listener> sharing_server::start(runtime& rt, std::string on) {
    auto made = co_await rt.listen(on);
    co_return must(std::move(made), "listen");
}

/// One client after another would be possible; a benchmark has one.
task<void> sharing_server::serve(sharing_server& self) {
    auto accepted = co_await self.listener_.accept();
    connection peer = must(std::move(accepted), "accept");
    auto leased = co_await self.runtime_.pool().allocate(self.memory_bytes_);
    const pooled_buffer memory = must(std::move(leased), "pool");
    auto sharing = co_await peer.share(memory, access::remote_read | access::remote_write);
    const shared_region shared = must(std::move(sharing), "share");
    auto told = co_await peer.send(shared.description());
    must(std::move(told), "send");
    auto gone = co_await peer.closed();
    must(std::move(gone), "closed");
    self.listener_.close();
    self.listener_ = {};
}

// ---- the end that is measured ----

one_sided_client::one_sided_client(runtime& rt, const work& w, std::string to) : runtime_(rt), work_(w) {
    rt.sync_wait(connect(*this, std::move(to)));
}

one_sided_client::~one_sided_client() { runtime_.sync_wait(leave(*this)); }

run_figures one_sided_client::run(direction way, path carried, std::uint64_t operations) {
    return runtime_.sync_wait(run_all(*this, way, carried, operations));
}

task<void> one_sided_client::connect(one_sided_client& self, std::string to) {
    auto made = co_await self.runtime_.connect(to);
    self.connection_ = must(std::move(made), "connect");
    auto told = co_await self.connection_.receive<remote_region>();
    self.remote_ = must(std::move(told), "receive");
    auto leased = co_await self.runtime_.pool().allocate(self.work_.size_bytes * self.work_.depth);
    self.memory_ = must(std::move(leased), "pool");
}

task<void> one_sided_client::leave(one_sided_client& self) {
    auto closed = co_await self.connection_.close();
    must(std::move(closed), "close");
    self.memory_.reset();
    self.connection_ = {};
}

namespace {

task<void> one_block(one_sided_blocks on, direction way, unsigned index, std::uint64_t operations) {
    const std::size_t size = on.size_bytes;
    const region_view here = on.here.subview(index * size, size);
    const remote_view there = on.there.subview(index * size, size);
    for (std::uint64_t i = 0; i < operations; ++i) {
        if (way == direction::read) {
            auto done = co_await on.over.read(there, here);
            must(std::move(done), "read");
        } else {
            auto done = co_await on.over.write(there, here);
            must(std::move(done), "write");
        }
    }
}

std::uint64_t bytes_of(const connection& c, direction way, path carried) {
    const connection_stats s = c.stats();
    return (way == direction::read ? s.read : s.write).bytes(carried);
}

} // namespace

task<void> one_sided(one_sided_blocks on, direction way, unsigned depth, std::uint64_t operations) {
    scope blocks;
    for (unsigned i = 0; i < depth; ++i) blocks.spawn(one_block(on, way, i, operations / depth));
    auto done = co_await blocks.join();
    must(std::move(done), "transfer");
}

task<run_figures> one_sided_client::run_all(one_sided_client& self, direction way, path carried,
                                            std::uint64_t operations) {
    const unsigned depth = self.work_.depth;
    const std::uint64_t before = bytes_of(self.connection_, way, carried);
    const stopwatch watch;
    const one_sided_blocks blocks{self.connection_, self.memory_.first(self.work_.size_bytes * depth), self.remote_,
                                  self.work_.size_bytes};
    co_await one_sided(blocks, way, depth, operations);
    const run_figures seen = watch.read();
    if (bytes_of(self.connection_, way, carried) - before != operations / depth * depth * self.work_.size_bytes)
        fail(fmt::format("transfer: the byte counters of path {} don't tell what was moved", to_string(carried)));
    co_return seen;
}

} // namespace sluice::bench
