#include "examples/object_store/client.hpp"
#include "examples/object_store/demo/server_process.hpp"
#include "examples/object_store/protocol.hpp"

#include "tests/support/temporary_directory.hpp"

#include <sluice/runtime.hpp>
#include <sluice/sleep.hpp>
#include <sluice/when_any.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>

// What clients of the object store may do that sluice-store never does, and servers in a bad way.

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using sluice::result;
using sluice::task;

constexpr std::uint32_t chunk_bytes = 256 << 10;
constexpr auto patience = 60s;

/// A server of a folder of its own, which holds the object "object" of four chunks.
struct fixture {
    sluice::testing::temporary_directory folder;
    std::optional<demo::server_process> server;
    std::optional<sluice::runtime> rt;

    explicit fixture(std::vector<std::string> options = {}) {
        const char* program = std::getenv("SLUICE_STORE_PROGRAM");
        REQUIRE(program != nullptr);
        fs::create_directory(folder / "objects");
        std::ofstream(folder / "source", std::ios::binary) << std::string(4 * chunk_bytes, 'x');
        options.insert(options.end(), {"--stall-timeout", "3600"});
        auto started = demo::server_process::start(program, folder / "objects", options);
        REQUIRE(started);
        server.emplace(std::move(*started));
        auto made = sluice::runtime::create({.pool_bytes = std::size_t{16} << 20});
        REQUIRE(made);
        rt.emplace(std::move(*made));
        CHECK(outcome(rt->sync_wait(put_object(*this))) == "ok");
    }

    static task<result<void>> put_object(fixture& f) {
        auto link = co_await store::client::open(*f.rt, f.server->address());
        if (!link) co_return link.error();
        auto put = co_await link->put(f.folder / "source", "object");
        if (!put) co_return put.error();
        co_return co_await link->close();
    }
    template <class T>
    static std::string outcome(const result<T>& r) {
        return r ? "ok" : r.error().message();
    }
};

/// A connection that speaks the protocol by hand, with a window of one chunk.
struct hand {
    sluice::pooled_buffer window;
    sluice::pooled_buffer inbox;
    sluice::connection connection;
    sluice::shared_region shared;

    static task<result<hand>> reach(fixture& f) {
        hand h;
        auto window = co_await f.rt->pool().allocate(chunk_bytes);
        if (!window) co_return window.error();
        h.window = std::move(*window);
        auto inbox = co_await f.rt->pool().allocate(4096);
        if (!inbox) co_return inbox.error();
        h.inbox = std::move(*inbox);
        auto connection = co_await f.rt->connect(f.server->address(), {.message_bytes_max = store::message_bytes_max});
        if (!connection) co_return connection.error();
        h.connection = std::move(*connection);
        auto shared = co_await h.connection.share(h.window, sluice::access::remote_read | sluice::access::remote_write);
        if (!shared) co_return shared.error();
        h.shared = std::move(*shared);
        co_return std::move(h);
    }
    task<result<void>> ask(store::verb what, std::string key, std::uint64_t size_bytes = 0) {
        store::request r;
        r.what = what;
        r.size_bytes = size_bytes;
        r.chunk_bytes = chunk_bytes;
        r.slots = 1;
        r.window = shared.description().encode();
        auto sent = co_await connection.send(r);
        if (sent) sent = co_await connection.send(store::key_text(key));
        co_return sent;
    }
    /// The next reply; immediates before it are skipped.
    task<result<store::reply>> hear(std::chrono::nanoseconds deadline = patience) {
        for (;;) {
            auto got = co_await connection.receive(inbox, {.deadline = deadline});
            if (!got) co_return got.error();
            if (got->immediate || got->size_bytes != sizeof(store::reply)) continue;
            store::reply r;
            std::memcpy(&r, inbox.data(), sizeof r);
            if (r.code != 0) co_return r.refused();
            co_return r;
        }
    }
};

/// Starts a transfer, reports what it is told to, and gives the server's verdict.
task<result<store::reply>> report(fixture& f, store::verb what, std::vector<store::progress> reports) {
    auto h = co_await hand::reach(f);
    if (!h) co_return h.error();
    auto asked = co_await h->ask(what, "object", 4 * chunk_bytes);
    if (!asked) co_return asked.error();
    auto go = co_await h->hear();
    if (!go) co_return go.error();
    for (const store::progress& each : reports) {
        auto told = co_await h->connection.send(each);
        if (!told) co_return told.error();
    }
    co_return co_await h->hear();
}

std::size_t open_objects(const fixture& f) {
    std::size_t count = 0;
    for (const auto& each : fs::directory_iterator("/proc/" + std::to_string(f.server->pid()) + "/fd")) {
        std::error_code ignored;
        if (fs::read_symlink(each.path(), ignored).filename() == "object") ++count;
    }
    return count;
}

/// Gets that go no further, until some wait for memory of the pool; then what the server has open.
task<result<void>> hold_gets(fixture& f) {
    constexpr std::size_t enough = 12; // waiting, more than fit
    auto link = co_await store::client::open(*f.rt, f.server->address());
    if (!link) co_return link.error();
    std::vector<hand> held;
    std::uint64_t waiting = 0;
    for (const auto until = std::chrono::steady_clock::now() + patience; waiting < enough;) {
        auto h = co_await hand::reach(f);
        if (!h) co_return h.error();
        held.push_back(std::move(*h));
        auto asked = co_await held.back().ask(store::verb::get, "object");
        if (!asked) co_return asked.error();
        // Either it is answered, or nobody tells that it waits but the counter.
        for (const std::uint64_t before = waiting; waiting == before;) {
            auto answer = co_await held.back().hear(5ms);
            if (answer) break;
            auto stats = co_await link->server();
            if (!stats) co_return stats.error();
            waiting = stats->pool_waits;
            if (std::chrono::steady_clock::now() > until) co_return answer.error();
        }
    }
    constexpr std::size_t per_object = 2; // direct, and for what is not aligned
    const std::size_t open = open_objects(f);
    if (open > per_object * (held.size() - waiting))
        co_return sluice::error(sluice::errc::out_of_resources, std::to_string(open) + " descriptors for " +
                                                                    std::to_string(held.size()) + " gets of which " +
                                                                    std::to_string(waiting) + " wait");
    co_return sluice::result<void>();
}

/// Leaves the server the descriptors that it has now.
void take_descriptors_from(pid_t pid) {
    rlimit limit{};
    REQUIRE(prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) == 0);
    limit.rlim_cur = 0;
    while (fs::exists("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(limit.rlim_cur))) ++limit.rlim_cur;
    REQUIRE(prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0);
}

task<result<void>> wait_for(std::chrono::nanoseconds time) { co_return co_await sluice::sleep_for(time); }

/// Stops a child, all its threads: a kill() alone returns while they still run, and answer.
result<void> stand_still(pid_t pid) {
    siginfo_t how{};
    if (kill(pid, SIGSTOP) != 0 || waitid(P_PID, static_cast<id_t>(pid), &how, WSTOPPED | WNOWAIT) != 0)
        return sluice::error::from_errno(errno, "a server is to be stopped");
    return {};
}

/// An answer, then silence: whether a close ends by itself.
task<result<void>> close_after_silence(fixture& f) {
    auto link = co_await store::client::open(*f.rt, f.server->address(), {.timeout = 200ms});
    if (!link) co_return link.error();
    auto answered = co_await link->server();
    if (!answered) co_return answered.error();
    if (auto stopped = stand_still(f.server->pid()); !stopped) co_return stopped;
    auto first = co_await sluice::when_any(link->close(), wait_for(15s));
    kill(f.server->pid(), SIGCONT);
    if (first.index != 0) co_return sluice::error(sluice::errc::deadline_exceeded, "it still waits");
    if (first.value) co_return sluice::error(sluice::errc::protocol_error, "a goodbye from a server that is stopped");
    co_return sluice::result<void>();
}

task<result<store::object_info>> stat_without_descriptors(fixture& f) {
    auto link = co_await store::client::open(*f.rt, f.server->address());
    if (!link) co_return link.error();
    auto there = co_await link->stat("object");
    if (!there) co_return there.error();
    take_descriptors_from(f.server->pid());
    co_return co_await link->stat("object");
}

} // namespace

TEST_CASE("Store_protocol.progress_that_does_not_grow_is_none") {
    using kind = store::progress::kind;
    fixture f;
    const auto refused = [&f](store::verb what, std::vector<store::progress> reports) {
        const auto end = f.rt->sync_wait(report(f, what, std::move(reports)));
        CHECK(fixture::outcome(end).find("progress that makes no sense") != std::string::npos);
    };
    refused(store::verb::get, {{.what = kind::consumed, .chunks = 0}});
    refused(store::verb::get, {{.what = kind::consumed, .chunks = 1}, {.what = kind::consumed, .chunks = 1}});
    refused(store::verb::get, {{.what = kind::consumed, .chunks = 4}}); // of which three were not sent yet
    refused(store::verb::put, {{.what = kind::ready, .chunks = 0}});
    refused(store::verb::put, {{.what = kind::ready, .chunks = 1}, {.what = kind::ready, .chunks = 1}});
    CHECK(fixture::outcome(f.server->stop()) == "ok");
}

TEST_CASE("Store_protocol.who_waits_for_memory_holds_no_file") {
    fixture f({"--pool", "2M", "--chunk", "1M", "--window", "1"});
    CHECK(fixture::outcome(f.rt->sync_wait(hold_gets(f))) == "ok");
    CHECK(fixture::outcome(f.server->stop()) == "ok");
}

TEST_CASE("Store_protocol.a_goodbye_takes_no_longer_than_the_timeout") {
    fixture f;
    CHECK(fixture::outcome(f.rt->sync_wait(close_after_silence(f))) == "ok");
    CHECK(fixture::outcome(f.server->stop()) == "ok");
}

TEST_CASE("Store_protocol.a_server_without_descriptors_says_so") {
    fixture f;
    const auto answered = f.rt->sync_wait(stat_without_descriptors(f));
    REQUIRE(!answered);
    CHECK(answered.error() == sluice::condition::out_of_resources);
    CHECK(answered.error().message().find("the server has no descriptors left") == 0);
    CHECK(fixture::outcome(f.server->stop()) == "ok");
}
