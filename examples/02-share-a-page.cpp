// The other side of 01-read-a-peer: shares 64 KiB with every client until the client goes.
//
//   build/examples/02-share-a-page tcp://0.0.0.0:7471

#include <sluice/sluice.hpp>

#include <cstdio>
#include <cstring>

sluice::task<void> serve_one(sluice::runtime& rt, sluice::connection peer) {
    auto page = co_await rt.pool().allocate(64 * 1024);
    if (!page) co_return;
    std::strcpy(reinterpret_cast<char*>(page->data()), "hello from the other side");
    auto shared = co_await peer.share(*page, sluice::access::remote_read); // revoked when `shared` or the connection goes
    if (!shared) co_return;
    auto told = co_await peer.send(shared->description());
    if (told) (void)co_await peer.closed();
}

sluice::task<sluice::result<void>> serve(sluice::runtime& rt, const char* address) {
    auto listener = co_await rt.listen(address);
    if (!listener) co_return listener.error();
    std::printf("listening at %s\n", listener->address().to_string().c_str());
    std::fflush(stdout);
    sluice::scope clients; // joins all of them before it lets go
    for (;;) {
        auto peer = co_await listener->accept();
        if (!peer) break;
        clients.spawn(serve_one(rt, std::move(*peer)));
    }
    co_return co_await clients.join();
}

sluice::task<int> app(sluice::runtime& rt, const char* address) {
    auto served = co_await serve(rt, address);
    if (!served) std::fprintf(stderr, "%s\n", served.error().message().c_str());
    co_return served ? 0 : 1;
}

int main(int argc, char** argv) {
    const char* address = argc > 1 ? argv[1] : "auto://[::]:7471";
    return sluice::run([&](sluice::runtime& rt) { return app(rt, address); });
}
