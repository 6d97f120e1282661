#include "tests/conformance/pair.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_capture.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <thread>
#include <unistd.h>
#include <utility>

namespace sluice::conformance {

namespace {

std::string text_of(const std::exception_ptr& e) {
    try {
        std::rethrow_exception(e);
    } catch (const std::exception& caught) {
        return caught.what();
    }
}

/// The running test case, for messages.
std::string test_name() { return Catch::getResultCapture().getCurrentTestName(); }

/// Fails the test case with the text of each exception that is not null.
void report(std::exception_ptr client, std::exception_ptr server) {
    if (client) FAIL_CHECK("client: " << text_of(client));
    if (server) FAIL_CHECK("server: " << text_of(server));
    if (!client && !server) SUCCEED();
}

task<void> serve(runtime& rt, std::string on, listen_options options, std::promise<std::string>& where,
                 const side& body) {
    auto listener = must(co_await rt.listen(on, options));
    where.set_value(listener.address().to_string());
    connection peer = must(co_await listener.accept());
    listener.close();
    co_await body(rt, peer);
    if (peer) static_cast<void>(co_await peer.closed());
}

task<void> use(runtime& rt, std::string to, pair_options options, const side& body) {
    connection peer = must(co_await rt.connect(to, options.client));
    co_await body(rt, peer);
    if (!options.ends_by_itself) must(co_await peer.close());
}

} // namespace

void require_row(const provider& p) {
    if (p.listen_on[0] != '$') return;
    const char* given = std::getenv(p.listen_on + 1);
    if (given == nullptr || *given == '\0')
        SKIP(p.name << ": the environment variable " << p.listen_on + 1 << " gives no address");
}

std::string listen_address(const provider& p) {
    static std::atomic<int> counter{0};
    std::string text = p.listen_on[0] == '$' ? std::getenv(p.listen_on + 1) : p.listen_on;
    if (const auto mark = text.find('%'); mark != text.npos)
        text.replace(mark, 1, std::to_string(getpid()) + "-" + std::to_string(++counter));
    return text;
}

connection_options with_lanes(const provider& p, connection_options o) {
    o.lanes = p.lanes;
    return o;
}

runtime make_runtime(std::uint32_t executors) {
    return must(runtime::create({.executors = executors, .pool_bytes = std::size_t{4} << 20, .pin = false}));
}

void run_pair(const provider& p, const side& client, const side& server, const pair_options& options) {
    const watchdog bounded(test_name());
    runtime rt = make_runtime(2);
    std::promise<std::string> where;
    std::exception_ptr server_failed;
    std::exception_ptr client_failed;
    listen_options listening;
    listening.connection = with_lanes(p, options.server);
    std::thread serving([&] {
        try {
            rt.sync_wait(serve(rt, listen_address(p), listening, where, server), 1);
        } catch (...) {
            server_failed = std::current_exception();
            try {
                where.set_exception(server_failed);
            } catch (const std::future_error&) { // it listened already
            }
        }
    });
    try {
        pair_options connecting = options;
        connecting.client = with_lanes(p, options.client);
        rt.sync_wait(use(rt, where.get_future().get(), connecting, client), 0);
    } catch (...) {
        client_failed = std::current_exception();
        // At once, in case the server now waits for a client that never comes.
        std::fprintf(stderr, "%s: client: %s\n", test_name().c_str(), text_of(client_failed).c_str());
    }
    serving.join();
    report(client_failed, server_failed);
}

void run_alone(const std::function<task<void>(runtime&)>& body) {
    const watchdog bounded(test_name());
    std::exception_ptr failed;
    try {
        runtime rt = make_runtime(1);
        rt.sync_wait(body(rt));
    } catch (...) {
        failed = std::current_exception();
    }
    report(failed, nullptr);
}

task<void> until_used(connection& c, std::uint64_t operations) {
    if (c.capabilities().remote_cpu_bypass) {
        for (int i = 0; i < 3000; ++i) co_await yield(); // nothing here tells what the device serves
        co_return;
    }
    const auto before = c.stats().served_operations;
    while (c.stats().served_operations < before + operations) co_await yield();
}

task<void> share_until_closed(connection& c, region_view memory, access granted) {
    auto shared = must(co_await c.share(memory, granted));
    must(co_await c.send(shared.description()));
    must(co_await c.closed());
}

} // namespace sluice::conformance
