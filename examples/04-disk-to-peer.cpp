// A file goes from the disk into a peer's memory and from there into another file: pipelined, by direct I/O, without a
// copy in user space, in the memory of eight chunks whatever its size.
//
//   build/examples/04-disk-to-peer FROM TO

#include <sluice/sluice.hpp>

#include <cstdint>
#include <cstdio>
#include <string>

/// The peer: memory for `size` bytes, as long as the connection lasts.
sluice::task<sluice::result<void>> lend_memory(sluice::runtime& rt, sluice::listener& listener, std::uint64_t size) {
    auto peer = co_await listener.accept();
    if (!peer) co_return peer.error();
    auto memory = co_await rt.pool().allocate(size);
    if (!memory) co_return memory.error();
    auto shared = co_await peer->share(*memory, sluice::access::remote_read | sluice::access::remote_write);
    if (!shared) co_return shared.error();
    auto told = co_await peer->send(shared->description());
    if (!told) co_return told.error();
    co_return co_await peer->closed();
}

sluice::task<sluice::result<void>> there_and_back(sluice::connection& conn, sluice::file& from, std::uint64_t size,
                                                  std::string to) {
    auto remote = co_await conn.receive<sluice::remote_region>();
    if (!remote) co_return remote.error();
    auto sent = co_await sluice::transfer(from, {.offset = 0, .size = size}, conn, *remote,
                                          {.chunk = 1 << 20, .window = 8});
    if (!sent) co_return sent.error();
    auto copy = co_await sluice::file::open(to, {.mode = sluice::open_mode::write, .direct = true});
    if (!copy) co_return copy.error();
    auto fetched = co_await sluice::transfer(conn, *remote, *copy, {.offset = 0, .size = size},
                                             {.chunk = 1 << 20, .window = 8});
    if (!fetched) co_return fetched.error();
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
    peer.spawn(lend_memory(rt, *listener, status->size_bytes));
    auto conn = co_await rt.connect(listener->address());
    sluice::result<void> done;
    if (!conn) done = conn.error();
    else done = co_await there_and_back(*conn, *file, status->size_bytes, to);
    if (conn) (void)co_await conn->close();
    peer.request_stop();
    (void)co_await peer.join();
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
    return sluice::run([&](sluice::runtime& rt) { return app(rt, argv[1], argv[2]); }, {.pool_bytes = 64 << 20});
}
