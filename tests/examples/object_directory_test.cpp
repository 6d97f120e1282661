#include "examples/object_store/object_directory.hpp"

#include "tests/support/run.hpp"
#include "tests/support/temporary_directory.hpp"

#include <sluice/scope.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;
using sluice::result;
using sluice::task;
using sluice::testing::temporary_directory;

/// An object of no bytes.
task<result<void>> put(store::object_directory& objects, std::string key) {
    auto pending = co_await objects.begin(0);
    if (!pending) co_return pending.error();
    std::array<std::byte, store::object_header::block_bytes> block{};
    store::object_header().encode(block);
    auto written = co_await pending->file.write(0, std::span<const std::byte>(block));
    if (!written) co_return written.error();
    co_return co_await objects.commit(*pending, std::move(key));
}

task<result<void>> put_and_remove(store::object_directory& objects, std::string key, int times) {
    for (int i = 0; i < times; ++i) {
        auto there = co_await put(objects, key);
        if (!there) co_return sluice::error(there.error().code(), "put: " + there.error().message());
        auto gone = co_await objects.remove(key);
        if (!gone) co_return sluice::error(gone.error().code(), "rm: " + gone.error().message());
    }
    co_return result<void>();
}

/// One task a key, all at once.
task<result<void>> put_and_remove_all(std::string path, std::vector<std::string> keys, int times) {
    auto objects = co_await store::object_directory::open(path);
    if (!objects) co_return objects.error();
    sluice::scope all;
    for (std::string& key : keys) all.spawn(put_and_remove(*objects, std::move(key), times));
    co_return co_await all.join();
}

task<result<void>> open_and_put(std::string path, std::string key) {
    auto objects = co_await store::object_directory::open(path);
    if (!objects) co_return objects.error();
    co_return co_await put(*objects, std::move(key));
}

std::string outcome(const result<void>& r) { return r ? "ok" : r.error().message(); }

std::size_t folders_in(const std::string& path) {
    std::size_t count = 0;
    for (const auto& each : fs::recursive_directory_iterator(path))
        if (each.is_directory() && each.path().filename() != ".sluice-store") ++count;
    return count;
}

} // namespace

TEST_CASE("Object_directory.puts_and_removals_of_neighbours_do_not_meet") {
    const temporary_directory d;
    std::vector<std::string> keys;
    for (const char* folder : {"q/r/s/", "q/r/", "q/", "q/r/t/u/v/"})
        for (const char* name : {"a", "b", "c"}) keys.push_back(std::string(folder) + name);
    CHECK(outcome(sluice::testing::run(put_and_remove_all(d.path(), keys, 100))) == "ok");
    CHECK(folders_in(d.path()) == 0);
}

TEST_CASE("Object_directory.empty_folders_that_a_killed_server_left_make_way") {
    for (const char* left : {"key", "key/b/c/d", "key/b/.sluice-strange"}) {
        INFO(left);
        const temporary_directory d;
        fs::create_directories(d / left);
        fs::create_directories(d / "key/b2/c");
        CHECK(outcome(sluice::testing::run(open_and_put(d.path(), "key"))) == "ok");
        CHECK(fs::is_regular_file(d / "key"));
    }
}

TEST_CASE("Object_directory.what_is_not_an_empty_folder_stays_in_the_way") {
    const temporary_directory d;
    fs::create_directories(d / "key/b/c");
    fs::create_directories(d / "key/z");
    std::ofstream(d / "key/b/c/file") << "somebody's";
    const auto refused = sluice::testing::run(open_and_put(d.path(), "key"));
    REQUIRE(!refused);
    CHECK(refused.error() == std::errc::is_a_directory);
    CHECK(fs::exists(d / "key/b/c/file"));
    CHECK(fs::exists(d / "key/z"));
}

TEST_CASE("Object_directory.a_put_that_fails_leaves_no_folders") {
    const temporary_directory d;
    fs::create_directories(d / "real");
    fs::create_symlink("/nowhere", d / "real/link");
    const std::size_t before = folders_in(d.path());
    CHECK(!sluice::testing::run(open_and_put(d.path(), "real/link/x/y")));
    CHECK(!sluice::testing::run(open_and_put(d.path(), "new/folders/" + std::string(256, 'x'))));
    CHECK(folders_in(d.path()) == before);
}
