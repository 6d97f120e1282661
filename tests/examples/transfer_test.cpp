#include <sluice/runtime.hpp>
#include <sluice/scope.hpp>
#include <sluice/transfer.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

namespace {

namespace fs = std::filesystem;

constexpr std::size_t mib = std::size_t{1} << 20;

struct file_pair {
    fs::path folder = fs::temp_directory_path() / ("sluice-transfer-" + std::to_string(getpid()));
    std::string content;
    explicit file_pair(std::size_t size) : content(size, '\0') {
        fs::create_directories(folder);
        for (std::size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7 + i / 4096 * 13);
        std::ofstream(folder / "source", std::ios::binary) << content;
    }
    ~file_pair() { fs::remove_all(folder); }
    std::string source() const { return (folder / "source").string(); }
    std::string target() const { return (folder / "target").string(); }
    std::string copied() const {
        std::ifstream in(target(), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

sluice::task<sluice::result<void>> lend(sluice::runtime& rt, sluice::listener& listener, std::size_t size) {
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

struct job {
    const file_pair& files;
    std::uint64_t lent_bytes;
    sluice::file_range range;
    sluice::transfer_options options{};
    bool direct = true;
    std::size_t peak_bytes = 0; ///< of the pool beyond what was lent
};

sluice::task<sluice::result<void>> there_and_back(sluice::runtime& rt, sluice::connection& conn, job& j) {
    auto remote = co_await conn.receive<sluice::remote_region>();
    if (!remote) co_return remote.error();
    auto from = co_await sluice::file::open(j.files.source(), {.direct = j.direct});
    if (!from) co_return from.error();
    auto sent = co_await sluice::transfer(*from, j.range, conn, remote->first(j.range.size), j.options);
    if (!sent) co_return sent.error();
    auto to = co_await sluice::file::open(j.files.target(), {.mode = sluice::open_mode::write, .direct = j.direct});
    if (!to) co_return to.error();
    auto fetched = co_await sluice::transfer(conn, remote->first(j.range.size), *to, {.size = j.range.size}, j.options);
    if (!fetched) co_return fetched.error();
    j.peak_bytes = rt.pool().occupancy().peak_bytes - j.lent_bytes;
    co_return co_await to->close();
}

sluice::task<sluice::result<void>> run(sluice::runtime& rt, job& j) {
    auto listener = co_await rt.listen("tcp://127.0.0.1:0");
    if (!listener) co_return listener.error();
    sluice::scope peer;
    peer.spawn(lend(rt, *listener, j.lent_bytes));
    auto conn = co_await rt.connect(listener->address());
    sluice::result<void> done;
    if (!conn) done = conn.error();
    else done = co_await there_and_back(rt, *conn, j);
    if (conn) (void)co_await conn->close();
    peer.request_stop();
    (void)co_await peer.join();
    co_return done;
}

std::string outcome(job& j) {
    auto rt = sluice::runtime::create({.pool_bytes = 32 * mib});
    REQUIRE(rt);
    const auto done = rt->sync_wait(run(*rt, j));
    return done ? "ok" : done.error().message();
}

} // namespace

TEST_CASE("Transfer.moves_a_file_to_a_peer_and_back_in_bounded_memory") {
    const file_pair files(9 * mib + 123);
    for (const bool direct : {true, false}) {
        job j{files, 12 * mib, {.offset = 0, .size = files.content.size()}, {.chunk = 256 * 1024, .window = 4}, direct};
        CHECK(outcome(j) == "ok");
        CHECK(files.copied() == files.content);
        CHECK(j.peak_bytes >= mib);
        CHECK(j.peak_bytes <= mib + 64 * 1024); // the window, and a little for messages
    }
}

TEST_CASE("Transfer.moves_any_range_in_chunks_of_any_size") {
    const file_pair files(300'000);
    for (const sluice::file_range range : {sluice::file_range{0, 0}, {0, 1}, {1, 4096}, {4095, 100'001}, {0, 300'000}})
        for (const std::size_t chunk : {std::size_t{4096}, std::size_t{5000}, mib}) {
            job j{files, mib, range, {.chunk = chunk, .window = 3}};
            INFO(range.offset << "+" << range.size << " in " << chunk);
            CHECK(outcome(j) == "ok");
            CHECK(files.copied() == files.content.substr(range.offset, range.size));
        }
}

TEST_CASE("Transfer.says_that_the_file_ended") {
    const file_pair files(100'000);
    job j{files, mib, {.offset = 50'000, .size = 60'000}, {.chunk = 4096, .window = 8}};
    CHECK(outcome(j).find("end of file") != std::string::npos);
}

TEST_CASE("Transfer.names_the_option_that_is_wrong") {
    const file_pair files(10'000);
    job small{files, mib, {.size = 10'000}, {.chunk = 100}};
    CHECK(outcome(small).find("transfer_options.chunk = 100") == 0);
    job none{files, mib, {.size = 10'000}, {.window = 0}};
    CHECK(outcome(none).find("transfer_options.window = 0") == 0);
    sluice::transfer_options vast{.chunk = 16 * mib, .window = 4};
    job large{files, mib, {.size = 10'000}, vast};
    CHECK(outcome(large) == "ok"); // it takes what the file needs, not what a window could
}
