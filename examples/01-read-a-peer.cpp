// Reads memory that a peer has shared (02-share-a-page): one-sided, the peer's program takes no part in it.
//
//   build/examples/01-read-a-peer tcp://127.0.0.1:7471

#include <sluice/sluice.hpp>

#include <cstdio>

sluice::task<int> app(sluice::runtime& rt, const char* address) {
    auto conn = co_await rt.connect(address);
    if (!conn) {
        std::fprintf(stderr, "%s\n", conn.error().message().c_str());
        co_return 1;
    }
    auto region = co_await conn->receive<sluice::remote_region>(); // the peer sent a description of its memory
    if (!region) co_return 1;
    auto buffer = co_await rt.pool().allocate(region->size_bytes);
    if (!buffer) co_return 1;
    auto done = co_await conn->read(*region, *buffer); // all bytes or an error
    if (!done) co_return 1;
    const int size = static_cast<int>(buffer->size_bytes()); // the peer need not have ended its text with a zero
    std::printf("read %d bytes: %.*s\n", size, size, reinterpret_cast<const char*>(buffer->data()));
    auto closed = co_await conn->close();
    co_return closed ? 0 : 1;
}

int main(int argc, char** argv) {
    const char* address = argc > 1 ? argv[1] : "auto://[::1]:7471";
    return sluice::run([&](sluice::runtime& rt) { return app(rt, address); }, {.pool_bytes = 8 << 20});
}
