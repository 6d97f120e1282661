#include "examples/object_store/client.hpp"
#include "examples/object_store/demo/server_process.hpp"

#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

constexpr std::size_t mib = std::size_t{1} << 20;

/// With a sanitizer the numbers say nothing about the program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

struct folder {
    fs::path path = fs::temp_directory_path() / ("sluice-many-clients-" + std::to_string(getpid()));
    folder() {
        fs::remove_all(path);
        fs::create_directories(path / "objects");
    }
    ~folder() { fs::remove_all(path); }
    std::string file(const std::string& name, std::size_t size) const {
        std::ofstream out(path / name, std::ios::binary);
        for (std::size_t i = 0; i < size; ++i) out.put(static_cast<char>(i * 31 + i / 4096));
        return (path / name).string();
    }
};

sluice::result<demo::server_process> start(const folder& f, const std::vector<std::string>& options) {
    const char* program = std::getenv("SLUICE_STORE_PROGRAM");
    REQUIRE(program != nullptr);
    return demo::server_process::start(program, (f.path / "objects").string(), options);
}

std::size_t resident_bytes(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6)) * 1024;
    return 0;
}

/// Puts and gets the same file under its own name some times.
sluice::task<sluice::result<void>> be_active(sluice::runtime& rt, std::string server, std::string file, std::string name) {
    auto link = co_await store::client::open(rt, server, {.chunk_bytes = 256 * 1024, .slots = 4});
    if (!link) co_return link.error();
    for (int i = 0; i < 3; ++i) {
        auto put = co_await link->put(file, name);
        if (!put) co_return put.error();
        auto got = co_await link->get(name, file + "." + name);
        if (!got) co_return got.error();
        if (got->crc32c != put->crc32c) co_return sluice::errc::protocol_error;
    }
    co_return co_await link->close();
}

sluice::task<sluice::result<void>> open_clients(sluice::runtime& rt, std::string server, std::size_t count,
                                                std::vector<store::client>& links) {
    for (std::size_t i = 0; i < count; ++i) {
        auto link = co_await store::client::open(rt, server);
        if (!link) co_return link.error();
        links.push_back(std::move(*link));
    }
    // They are taken in in order, so the server has all of them when it answers the last one.
    auto answered = co_await links.back().server();
    if (!answered) co_return answered.error();
    if (answered->clients != links.size()) co_return sluice::errc::protocol_error;
    co_return sluice::result<void>();
}

sluice::task<sluice::result<void>> all_active(sluice::runtime& rt, std::string server, std::string file, int count) {
    sluice::scope workers;
    for (int i = 0; i < count; ++i) workers.spawn(be_active(rt, server, file, "object" + std::to_string(i)));
    co_return co_await workers.join();
}

sluice::task<sluice::result<void>> close_clients(std::vector<store::client>& links) {
    for (store::client& link : links) {
        auto closed = co_await link.close();
        if (!closed) co_return closed.error();
    }
    links.clear();
    co_return sluice::result<void>();
}

std::string outcome(const sluice::result<void>& r) { return r ? "ok" : r.error().message(); }

} // namespace

TEST_CASE("Store_server.stays_within_the_pool_and_64_MiB_with_1000_clients") {
    constexpr std::size_t idle_clients = 1000;
    constexpr std::size_t pool_bytes = 16 * mib;
    rlimit descriptors{};
    getrlimit(RLIMIT_NOFILE, &descriptors);
    if (descriptors.rlim_cur < 2 * idle_clients + 100) SKIP("the limit of open files is too low for 1000 clients here");
    const folder f;
    const std::string file = f.file("source", 6 * mib + 77);
    auto server = start(f, {"--pool", "16M"});
    REQUIRE(server);
    auto rt = sluice::runtime::create({.pool_bytes = 64 * mib});
    REQUIRE(rt);
    const std::size_t alone = resident_bytes(server->pid());

    std::vector<store::client> links;
    CHECK(outcome(rt->sync_wait(open_clients(*rt, server->address(), idle_clients, links))) == "ok");
    const std::size_t with_idle = resident_bytes(server->pid());
    CHECK(outcome(rt->sync_wait(all_active(*rt, server->address(), file, 12))) == "ok");
    const std::size_t with_active = resident_bytes(server->pid());
    CHECK(outcome(rt->sync_wait(close_clients(links))) == "ok");
    CHECK(outcome(server->stop()) == "ok");

    INFO("resident: " << alone / 1024 << " KiB alone, " << with_idle / 1024 << " KiB with " << idle_clients
                      << " idle clients, " << with_active / 1024 << " KiB at the end; "
                      << (with_idle - alone) / idle_clients << " bytes a client");
    if (!is_sanitized) {
        CHECK(with_active <= pool_bytes + 64 * mib);
        CHECK((with_idle - alone) / idle_clients <= 16 * 1024);
    }
}

TEST_CASE("Store_server.lets_more_transfers_wait_than_its_pool_can_hold") {
    const folder f;
    const std::string file = f.file("source", 3 * mib + 1);
    // Room for two windows at once, and sixteen clients that want one.
    auto server = start(f, {"--pool", "2M", "--chunk", "128K", "--window", "8"});
    REQUIRE(server);
    auto rt = sluice::runtime::create({.pool_bytes = 64 * mib});
    REQUIRE(rt);
    CHECK(outcome(rt->sync_wait(all_active(*rt, server->address(), file, 16))) == "ok");
    CHECK(outcome(server->stop()) == "ok");
}

TEST_CASE("Store_server.tells_a_client_too_many_that_it_is_busy") {
    const folder f;
    auto server = start(f, {"--max-clients", "2"});
    REQUIRE(server);
    auto rt = sluice::runtime::create({.pool_bytes = 8 * mib});
    REQUIRE(rt);
    std::vector<store::client> links;
    CHECK(outcome(rt->sync_wait(open_clients(*rt, server->address(), 2, links))) == "ok");
    const auto third = rt->sync_wait(open_clients(*rt, server->address(), 1, links));
    REQUIRE(!third);
    CHECK(third.error() == std::errc::resource_unavailable_try_again);
    CHECK(third.error().message().find("the server has 2 clients") == 0);
    CHECK(outcome(rt->sync_wait(close_clients(links))) == "ok");
    CHECK(outcome(server->stop()) == "ok");
}
