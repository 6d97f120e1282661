// The other side of 01-read-a-peer: shares 64 KiB with every client until the client goes. SIGINT and SIGTERM end it in
// order: clients are told, and the path of a unix socket is removed.
//
//   build/examples/02-share-a-page tcp://0.0.0.0:7471

#include <sluice/sluice.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

sigset_t ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

/// Until one of them comes.
sluice::task<sluice::result<void>> told_to_end() {
    const sigset_t set = ending_signals();
    const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) co_return sluice::error::from_errno(errno, "signalfd");
    auto came = co_await sluice::readiness(fd, POLLIN);
    close(fd);
    if (!came) co_return came.error();
    co_return sluice::result<void>();
}

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
    auto first = co_await sluice::when_any(serve(rt, address), told_to_end()); // stops the other, and waits for it
    if (!first.value) std::fprintf(stderr, "%s\n", first.value.error().message().c_str());
    co_return first.value ? 0 : 1;
}

int main(int argc, char** argv) {
    const char* address = argc > 1 ? argv[1] : "auto://[::]:7471";
    const sigset_t set = ending_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr); // before there are other threads, so that all of them leave it to signalfd
    return sluice::run([&](sluice::runtime& rt) { return app(rt, address); });
}
