#include "tests/support/check_result.hpp"
#include "tests/support/temporary_directory.hpp"

#include <sluice/directory.hpp>
#include <sluice/file_system.hpp>
#include <sluice/sync_wait.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

using sluice::testing::open_descriptors;
using sluice::testing::temporary_directory;

namespace {

std::unique_ptr<sluice::executor> make_executor() { return std::move(sluice::executor::create().value()); }

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string get(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

bool exists(const std::string& path) {
    struct stat ignored {};
    return lstat(path.c_str(), &ignored) == 0;
}

} // namespace

TEST_CASE("File_system.renames_removes_and_makes_directories") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        put(d / "a", "first");
        put(d / "b", "second");
        CHECK_SUCCESS(co_await sluice::rename(d / "a", d / "b"));
        CHECK(get(d / "b") == "first");
        CHECK_FALSE(exists(d / "a"));
        put(d / "c", "third");
        auto taken = co_await sluice::rename_new(d / "c", d / "b");
        REQUIRE_FALSE(taken);
        CHECK(taken.error() == sluice::condition::already_exists);
        CHECK(get(d / "b") == "first");
        auto missing = co_await sluice::rename(d / "none", d / "x");
        REQUIRE_FALSE(missing);
        CHECK(missing.error().message() ==
              "rename '" + (d / "none") + "' to '" + (d / "x") + "': No such file or directory");

        CHECK_SUCCESS(co_await sluice::make_directory(d / "sub", 0700));
        auto again = co_await sluice::make_directory(d / "sub");
        REQUIRE_FALSE(again);
        CHECK(again.error() == sluice::condition::already_exists);
        auto status = co_await sluice::stat(d / "sub");
        REQUIRE(status);
        CHECK(status->type == sluice::file_type::directory);
        CHECK(status->permissions == 0700);
        put(d / "sub/file", "x");
        auto full = co_await sluice::remove_directory(d / "sub");
        REQUIRE_FALSE(full);
        CHECK(full.error() == std::errc::directory_not_empty);
        auto wrong = co_await sluice::remove(d / "sub");
        REQUIRE_FALSE(wrong);
        CHECK(wrong.error() == std::errc::is_a_directory);
        CHECK_SUCCESS(co_await sluice::remove(d / "sub/file"));
        CHECK_SUCCESS(co_await sluice::remove_directory(d / "sub"));
        CHECK_FALSE(exists(d / "sub"));
        auto gone = co_await sluice::remove(d / "sub");
        REQUIRE_FALSE(gone);
        CHECK(gone.error().message() == "remove '" + (d / "sub") + "': No such file or directory");
        auto nul = co_await sluice::remove(std::string("a\0b", 3));
        REQUIRE_FALSE(nul);
        CHECK(nul.error() == sluice::condition::invalid);
        CHECK_SUCCESS(co_await sluice::sync_directory(d.path()));
        auto no_directory = co_await sluice::sync_directory(d / "b");
        REQUIRE_FALSE(no_directory);
        CHECK(no_directory.error() == sluice::condition::invalid);
    };
    sluice::sync_wait(*home, body(dir));
}

TEST_CASE("File_system.stat_follows_links_and_stat_link_does_not") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        put(d / "file", "12345");
        REQUIRE(symlink("file", (d / "link").c_str()) == 0);
        struct stat reference {};
        REQUIRE(::stat((d / "file").c_str(), &reference) == 0);
        auto followed = co_await sluice::stat(d / "link");
        REQUIRE(followed);
        CHECK(followed->size_bytes == 5);
        CHECK(followed->type == sluice::file_type::regular);
        CHECK(followed->inode == reference.st_ino);
        CHECK(followed->device == reference.st_dev);
        CHECK(followed->links == 1);
        CHECK(followed->modified.time_since_epoch() ==
              std::chrono::seconds(reference.st_mtim.tv_sec) + std::chrono::nanoseconds(reference.st_mtim.tv_nsec));
        auto itself = co_await sluice::stat_link(d / "link");
        REQUIRE(itself);
        CHECK(itself->type == sluice::file_type::symlink);
        auto none = co_await sluice::stat(d / "none");
        REQUIRE_FALSE(none);
        CHECK(none.error().message() == "stat '" + (d / "none") + "': No such file or directory");
    };
    sluice::sync_wait(*home, body(dir));
}

TEST_CASE("File_system.lists_a_thousand_files") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        std::vector<std::string> expected;
        for (int i = 0; i < 1000; ++i) {
            expected.push_back("file-with-a-name-" + std::to_string(i));
            put(d / expected.back(), "x");
        }
        REQUIRE(mkdir((d / "folder").c_str(), 0700) == 0);
        auto listed = co_await sluice::list_directory(d.path());
        REQUIRE(listed);
        std::vector<std::string> names;
        for (const auto& entry : *listed) {
            if (entry.name == "folder") CHECK(entry.type == sluice::file_type::directory);
            else names.push_back(entry.name);
        }
        std::sort(names.begin(), names.end());
        std::sort(expected.begin(), expected.end());
        CHECK(names == expected);
        CHECK(listed->size() == 1001);
        auto none = co_await sluice::list_directory(d / "none");
        REQUIRE_FALSE(none);
        CHECK(none.error() == sluice::condition::not_found);
        CHECK(none.error().message().find(d / "none") != std::string::npos);
    };
    const auto before = open_descriptors();
    sluice::sync_wait(*home, body(dir));
    CHECK(open_descriptors() == before);
}

TEST_CASE("Directory.names_never_lead_out_of_it") {
    auto home = make_executor();
    temporary_directory dir;
    REQUIRE(mkdir((dir / "root").c_str(), 0700) == 0);
    REQUIRE(mkdir((dir / "root/sub").c_str(), 0700) == 0);
    put(dir / "secret", "secret");
    put(dir / "root/inside", "inside");
    REQUIRE(symlink("../secret", (dir / "root/out").c_str()) == 0);
    REQUIRE(symlink("..", (dir / "root/up").c_str()) == 0);
    REQUIRE(symlink("/etc", (dir / "root/etc").c_str()) == 0);
    REQUIRE(symlink("../inside", (dir / "root/sub/fine").c_str()) == 0);
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        auto opened = co_await sluice::directory::open(d / "root");
        REQUIRE(opened);
        sluice::directory& root = *opened;
        const std::array outside{"../secret", "sub/../../secret", "out", "up/secret", "etc/passwd", "/etc/passwd", "./../secret"};
        for (const std::string name : outside) {
            INFO(name);
            auto file = co_await root.open_file(name);
            REQUIRE_FALSE(file);
            CHECK(file.error() == sluice::errc::invalid_argument);
            CHECK(file.error().message().find("leads out of the directory") != std::string::npos);
            auto made = co_await root.open_file(name, {.mode = sluice::open_mode::write});
            CHECK_FALSE(made);
            if (name == "out") continue; // the link itself lies inside: its own name may be changed
            auto removed = co_await root.remove(name);
            REQUIRE_FALSE(removed);
            CHECK(removed.error() == sluice::errc::invalid_argument);
            auto moved_in = co_await root.rename(name, "stolen");
            CHECK_FALSE(moved_in);
            auto moved_out = co_await root.rename("inside", name);
            CHECK_FALSE(moved_out);
            auto directory = co_await root.make_directory(name + "-dir");
            CHECK_FALSE(directory);
            auto status = co_await root.stat(name);
            CHECK_FALSE(status);
        }
        CHECK(get(d / "secret") == "secret");
        CHECK(get(d / "root/inside") == "inside");
        for (const std::string name : {"..", "up", "/", "etc"}) {
            INFO(name);
            auto listed = co_await root.list(name);
            CHECK_FALSE(listed);
            auto below = co_await root.open_directory(name);
            CHECK_FALSE(below);
        }
        for (const std::string name : {"", ".", "..", "sub/..", "/"}) {
            INFO("'" << name << "'");
            auto removed = co_await root.remove_directory(name);
            REQUIRE_FALSE(removed);
            CHECK(removed.error() == sluice::errc::invalid_argument);
        }
        auto fine = co_await root.open_file("sub/fine");
        REQUIRE(fine);
        std::array<std::byte, 16> text{};
        auto read = co_await fine->read(0, text);
        REQUIRE(read);
        CHECK(*read == 6);
        CHECK(fine->path() == (d / "root") + "/sub/fine");
    };
    const auto before = open_descriptors();
    sluice::sync_wait(*home, body(dir));
    CHECK(open_descriptors() == before);
}

TEST_CASE("Directory.does_beneath_what_the_free_functions_do") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        auto opened = co_await sluice::directory::open(d.path());
        REQUIRE(opened);
        sluice::directory root = std::move(*opened);
        CHECK_SUCCESS(co_await root.make_directory("a"));
        CHECK_SUCCESS(co_await root.make_directory("a/b/", 0700));
        {
            auto file = co_await root.open_file("a/b/temporary", {.mode = sluice::open_mode::write, .direct = true});
            REQUIRE(file);
            const std::array<std::byte, 3> data{std::byte{'x'}, std::byte{'y'}, std::byte{'z'}};
            CHECK_SUCCESS(co_await file->write(0, data));
            CHECK_SUCCESS(co_await file->sync());
            CHECK_SUCCESS(co_await file->close());
        }
        CHECK_SUCCESS(co_await root.rename("a/b/temporary", "a/final"));
        CHECK_SUCCESS(co_await root.sync("a"));
        CHECK_SUCCESS(co_await root.sync());
        CHECK(get(d / "a/final") == "xyz");
        CHECK_FAILURE(co_await root.rename_new("a/b", "a/final"));
        auto status = co_await root.stat("a/final");
        REQUIRE(status);
        CHECK(status->size_bytes == 3);
        auto listed = co_await root.list("a");
        REQUIRE(listed);
        CHECK(listed->size() == 2);
        auto below = co_await root.open_directory("a");
        REQUIRE(below);
        CHECK_SUCCESS(co_await below->remove("final"));
        CHECK_SUCCESS(co_await root.remove_directory("a/b"));
        CHECK_SUCCESS(co_await root.remove_directory("a"));
        auto gone = co_await root.stat("a/final");
        REQUIRE_FALSE(gone);
        CHECK(gone.error() == sluice::condition::not_found);
        CHECK(gone.error().message() == "stat 'a/final' beneath '" + d.path() + "': No such file or directory");
        auto missing = co_await root.rename("x", "y");
        REQUIRE_FALSE(missing);
        CHECK(missing.error().message() == "rename 'x' to 'y' beneath '" + d.path() + "': No such file or directory");
    };
    sluice::sync_wait(*home, body(dir));
}
