#include "examples/object_store/crc32c.hpp"
#include "examples/object_store/key.hpp"
#include "examples/object_store/location.hpp"
#include "examples/object_store/object_header.hpp"
#include "examples/object_store/protocol.hpp"
#include "examples/object_store/window.hpp"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

} // namespace

TEST_CASE("Store_crc32c.is_the_one_of_RFC_3720_in_any_number_of_pieces") {
    store::crc32c whole;
    whole.add(bytes_of("123456789"));
    CHECK(whole.value() == 0xe3069283);
    store::crc32c pieces;
    for (const char* piece : {"1234", "", "5", "6789"}) pieces.add(bytes_of(piece));
    CHECK(pieces.value() == 0xe3069283);
    CHECK(store::crc32c().value() == 0);
}

TEST_CASE("Store_key.refuses_what_could_leave_the_directory") {
    for (const char* good : {"a", "a/b", "..a", "a..", "a b", "\xc3\xa4", "-x", "a/.b"}) {
        INFO(good);
        CHECK(store::check_key(good));
    }
    CHECK(store::check_key(std::string(255, 'x') + "/" + std::string(255, 'y')));
    using namespace std::string_literals;
    for (const std::string& bad : {""s, "/a"s, "a/"s, "a//b"s, "."s, ".."s, "../a"s, "a/../b"s, "a/."s, "a\0b"s, "a\nb"s,
                                   ".sluice-store"s, "a/.sluice-x"s, std::string(256, 'x'), std::string(513, 'x'),
                                   std::string(255, 'x') + "/" + std::string(255, 'y') + "/z"}) {
        const auto checked = store::check_key(bad);
        INFO(bad);
        REQUIRE(!checked);
        CHECK(checked.error() == sluice::condition::invalid);
        CHECK(checked.error().message().find("key \"") == 0);
    }
}

TEST_CASE("Store_location.splits_server_and_key") {
    const auto check = [](const char* text, const char* server, const char* key) {
        INFO(text);
        const auto found = store::location::parse(text);
        REQUIRE(found);
        CHECK(found->server == server);
        CHECK(found->key == key);
    };
    check("tcp://10.0.0.2:7471/a/b.bin", "tcp://10.0.0.2:7471", "a/b.bin");
    check("tcp://10.0.0.2:7471", "tcp://10.0.0.2:7471", "");
    check("tcp://10.0.0.2:7471/", "tcp://10.0.0.2:7471", "");
    check("auto://[fe80::1%eth0]:7471/b", "auto://[fe80::1%eth0]:7471", "b");
    check("tcp://@name/a/b", "tcp://@name", "a/b");
    check("tcp:///nowhere/store.sock", "tcp:///nowhere/store.sock", "");
    for (const char* bad : {"", "a/b", "tcp://10.0.0.2:port/a", "http://10.0.0.2:7471/a"}) {
        INFO(bad);
        CHECK(!store::location::parse(bad));
    }
}

TEST_CASE("Store_location.ends_the_path_of_a_unix_socket_at_the_socket") {
    const auto folder = std::filesystem::temp_directory_path() / ("sluice-location-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    const std::string path = (folder / "socket").string();
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);

    const auto found = store::location::parse("tcp://" + path + "/a/b");
    CHECK(found);
    if (found) {
        CHECK(found->server == "tcp://" + path);
        CHECK(found->key == "a/b");
    }
    close(fd);
    std::filesystem::remove_all(folder);
}

TEST_CASE("Store_header.is_what_was_written_or_an_error") {
    std::array<std::byte, store::object_header::block_bytes> block;
    const store::object_header written{.size_bytes = 5000, .modified_ns = 77, .crc32c = 0x12345678};
    written.encode(block);
    const std::uint64_t file_bytes = 4096 + 8192;
    CHECK(store::object_header::file_bytes(5000) == file_bytes);
    CHECK(store::object_header::file_bytes(0) == 4096);
    const auto read = store::object_header::decode(block, file_bytes, "k");
    REQUIRE(read);
    CHECK(read->size_bytes == 5000);
    CHECK(read->modified_ns == 77);
    CHECK(read->crc32c == 0x12345678);

    CHECK(!store::object_header::decode(block, file_bytes - 1, "k"));
    CHECK(!store::object_header::decode(std::span(block).first(31), file_bytes, "k"));
    for (std::size_t at = 0; at < store::object_header::encoded_bytes; ++at) {
        block[at] ^= std::byte{1};
        const auto damaged = store::object_header::decode(block, file_bytes, "k");
        block[at] ^= std::byte{1};
        INFO(at);
        REQUIRE(!damaged);
        CHECK(damaged.error().message().find("corrupt object k: ") == 0);
    }
}

TEST_CASE("Store_layout.takes_no_more_memory_than_the_object_needs") {
    constexpr std::uint32_t mib = 1 << 20;
    const auto empty = store::layout::fit(0, mib, 8);
    CHECK(empty.chunks() == 0);
    CHECK(empty.window_bytes() == 4096);
    const auto small = store::layout::fit(5000, mib, 8);
    CHECK(small.chunks() == 1);
    CHECK(small.window_bytes() == 8192);
    CHECK(small.bytes(0) == 5000);
    CHECK(small.padded(0) == 8192);
    const auto some = store::layout::fit(2 * mib + 1, mib, 8);
    CHECK(some.chunks() == 3);
    CHECK(some.slots == 3);
    CHECK(some.bytes(2) == 1);
    CHECK(some.padded(2) == 4096);
    const auto large = store::layout::fit(std::uint64_t{1} << 40, mib, 8);
    CHECK(large.chunks() == mib);
    CHECK(large.window_bytes() == 8 * mib);
    CHECK(large.slot_offset(9) == mib);
}

TEST_CASE("Store_reply.carries_an_error_over") {
    const auto system = sluice::error::from_errno(ENOSPC, "a disk");
    CHECK(store::reply::refusal(system).refused() == sluice::condition::no_space);
    CHECK(store::reply::refusal(system).refused().message() == system.message());
    const sluice::error own(sluice::errc::unsupported, std::string(1000, 'x'));
    CHECK(store::reply::refusal(own).refused() == sluice::errc::unsupported);
    CHECK(store::reply::refusal(own).refused().detail() == std::string(store::text_bytes_max, 'x'));
    CHECK(store::reply::refusal(sluice::errc::closed).refused() == sluice::errc::closed); // without words
    CHECK(store::reply{}.code == 0);
}
