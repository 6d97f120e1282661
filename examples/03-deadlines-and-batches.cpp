// Deadlines, timeouts, the faster of two replicas, and several operations with one completion. Two replicas run beside
// the client in this process; over a network it looks the same.

#include <sluice/sluice.hpp>

#include <chrono>
#include <cstdio>
#include <string>

using namespace std::chrono_literals;

/// Shares a page, and keeps it as long as the client stays.
sluice::task<sluice::result<void>> replica(sluice::runtime& rt, sluice::listener& listener) {
    auto peer = co_await listener.accept();
    if (!peer) co_return peer.error();
    auto page = co_await rt.pool().allocate(8192);
    if (!page) co_return page.error();
    auto shared = co_await peer->share(*page, sluice::access::remote_read | sluice::access::remote_write);
    if (!shared) co_return shared.error();
    auto told = co_await peer->send(shared->description());
    if (!told) co_return told.error();
    co_return co_await peer->closed();
}

sluice::task<sluice::result<void>> read_from(sluice::connection& conn, sluice::remote_region remote,
                                             sluice::region_view local) {
    co_return co_await conn.read(remote, local, {.deadline = 5s}); // per operation
}

sluice::task<sluice::result<void>> use_replicas(sluice::runtime& rt, sluice::connection& a, sluice::connection& b) {
    auto at_a = co_await a.receive<sluice::remote_region>();
    if (!at_a) co_return at_a.error();
    auto at_b = co_await b.receive<sluice::remote_region>();
    if (!at_b) co_return at_b.error();
    auto local = co_await rt.pool().allocate(16384);
    if (!local) co_return local.error();

    // The loser is stopped and joined.
    auto first = co_await sluice::when_any(read_from(a, *at_a, local->first(8192)),
                                           read_from(b, *at_b, local->subview(8192, 8192)));
    if (!first.value) co_return first.value;
    std::printf("a replica answered\n");

    // Nothing more comes from the peer: the wait ends by its deadline, and the connection stays usable.
    auto silence = co_await a.receive(local->first(64), {.deadline = 10ms});
    std::printf("a receive with a deadline: %s\n", silence ? "?" : silence.error().message().c_str());
    // Any task can get one; it is asked to stop, then waited for.
    auto closed = co_await sluice::timeout(10ms, b.closed());
    std::printf("a task with a timeout: %s\n", closed ? "?" : closed.error().message().c_str());

    auto batch = a.batch(); // one doorbell, one completion
    batch.read(at_a->first(4096), local->first(4096));
    batch.write(at_a->subview(4096, 4096), local->subview(4096, 4096));
    auto done = co_await batch.submit();
    if (done) std::printf("a batch of %zu operations\n", batch.size());
    co_return done;
}

sluice::task<sluice::result<void>> run_all(sluice::runtime& rt) {
    auto listener = co_await rt.listen("tcp://127.0.0.1:0");
    if (!listener) co_return listener.error();
    sluice::scope replicas;
    replicas.spawn(replica(rt, *listener));
    replicas.spawn(replica(rt, *listener));
    const std::string address = listener->address().to_string();
    auto a = co_await rt.connect(address);
    auto b = co_await rt.connect(address);
    sluice::result<void> used = !a ? a.error() : !b ? b.error() : sluice::result<void>();
    if (used) used = co_await use_replicas(rt, *a, *b);
    if (a) (void)co_await a->close();
    if (b) (void)co_await b->close();
    replicas.request_stop(); // those that never got a client
    (void)co_await replicas.join();
    co_return used;
}

sluice::task<int> app(sluice::runtime& rt) {
    auto done = co_await run_all(rt);
    if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
    co_return done ? 0 : 1;
}

int main() { return sluice::run(app, {.executors = 1, .pool_bytes = 8 << 20}); }
