// A file goes from the disk into a peer's memory and from there into another file: pipelined, by direct I/O, without a
// copy in user space, in the memory of two windows of eight chunks, ours and the peer's, whatever its size.
//
//   build/examples/04-disk-to-peer FROM TO

#include <sluice/sluice.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

constexpr sluice::transfer_options pipeline{.chunk = 1 << 20, .window = 8};
constexpr std::uint64_t window_bytes = pipeline.chunk * pipeline.window;

/// The peer: memory for one window, as long as the connection lasts.
sluice::task<sluice::result<void>> lend_memory(sluice::runtime& rt, sluice::listener& listener) {
    auto peer = co_await listener.accept();
    if (!peer) co_return peer.error();
    auto memory = co_await rt.pool().allocate(window_bytes);
    if (!memory) co_return memory.error();
    auto shared = co_await peer->share(*memory, sluice::access::remote_read | sluice::access::remote_write);
    if (!shared) co_return shared.error();
    auto told = co_await peer->send(shared->description());
    if (!told) co_return told.error();
    co_return co_await peer->closed();
}

/// One window of the file after the other.
sluice::task<sluice::result<void>> there_and_back(sluice::connection& conn, sluice::file& from, std::uint64_t size,
                                                  std::string to) {
    auto remote = co_await conn.receive<sluice::remote_region>();
    if (!remote) co_return remote.error();
    auto copy = co_await sluice::file::open(to, {.mode = sluice::open_mode::write, .direct = true});
    if (!copy) co_return copy.error();
    for (std::uint64_t at = 0; at < size; at += window_bytes) {
        const sluice::file_range range{.offset = at, .size = std::min(window_bytes, size - at)};
        auto sent = co_await sluice::transfer(from, range, conn, remote->first(range.size), pipeline);
        if (!sent) co_return sent.error();
        auto fetched = co_await sluice::transfer(conn, remote->first(range.size), *copy, range, pipeline);
        if (!fetched) co_return fetched.error();
    }
    co_return co_await copy->close();
}

sluice::task<sluice::result<void>> copy_by_peer(sluice::runtime& rt, std::string from, std::string to) {
    auto file = co_await sluice::file::open(from, {.direct = true});
    if (!file) co_return file.error();
    auto status = co_await file->stat();
    if (!status) co_return status.error();
    auto listener = co_await rt.listen("tcp://127.0.0.1:0");
    if (!listener) co_return listener.error();
    sluice::scope peer;
    peer.spawn(lend_memory(rt, *listener));
    auto conn = co_await rt.connect(listener->address());
    sluice::result<void> done;
    if (!conn) done = conn.error();
    else done = co_await there_and_back(*conn, *file, status->size_bytes, to);
    if (conn) (void)co_await conn->close();
    peer.request_stop();
    auto lent = co_await peer.join();
    if (!lent && (done || done.error() == sluice::condition::closed)) // why ours broke
        co_return sluice::error(lent.error().code(), "the peer failed: " + std::string(lent.error().detail()));
    if (done) std::printf("%llu bytes, there and back\n", static_cast<unsigned long long>(status->size_bytes));
    co_return done;
}

sluice::task<int> app(sluice::runtime& rt, const char* from, const char* to) {
    auto done = co_await copy_by_peer(rt, from, to);
    if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
    co_return done ? 0 : 1;
}

int main(int argc, char** argv) {
    if (argc != 3) return std::fprintf(stderr, "usage: 04-disk-to-peer FROM TO\n"), 2;
    constexpr std::size_t pool_bytes = 2 * window_bytes * 5 / 4; // some is kept back for messages
    return sluice::run([&](sluice::runtime& rt) { return app(rt, argv[1], argv[2]); }, {.pool_bytes = pool_bytes});
}
