#include "tests/support/check_result.hpp"
#include "tests/support/heap.hpp"
#include "tests/support/temporary_directory.hpp"

#include <sluice/file.hpp>
#include <sluice/file_system.hpp>
#include <sluice/pool.hpp>
#include <sluice/sync_wait.hpp>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using sluice::testing::open_descriptors;
using sluice::testing::temporary_directory;

namespace {

std::unique_ptr<sluice::executor> make_executor() { return std::move(sluice::executor::create().value()); }

struct freed {
    void operator()(std::byte* p) const noexcept { std::free(p); }
};
/// Page-aligned memory with a pattern that repeats at no power of two.
class block {
public:
    explicit block(std::size_t size, unsigned seed = 0)
        : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, (size + 8192) / 4096 * 4096))), size_(size) {
        for (std::size_t i = 0; i < size; ++i) memory_[i] = pattern(i, seed);
    }
    static std::byte pattern(std::size_t i, unsigned seed) noexcept {
        return static_cast<std::byte>((i * 7 + i / 251 + seed) & 0xff);
    }
    std::span<std::byte> bytes() noexcept { return {memory_.get(), size_}; }
    std::span<std::byte> part(std::size_t offset, std::size_t n) noexcept { return bytes().subspan(offset, n); }

private:
    std::unique_ptr<std::byte[], freed> memory_;
    std::size_t size_;
};

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}


/// Writes `data` at `offset`, reads it back into other memory that is off by `shift`, and compares.
sluice::task<bool> round_trip(sluice::file& f, std::uint64_t offset, std::span<const std::byte> data, std::size_t shift) {
    auto written = co_await f.write(offset, data);
    if (!written) co_return false;
    block back(data.size() + shift, 99);
    auto read = co_await f.read(offset, back.part(shift, data.size()));
    co_return read && *read == data.size() && equal(back.part(shift, data.size()), data);
}

sluice::task<sluice::result<sluice::file>> open(std::string path, sluice::open_options options) {
    co_return co_await sluice::file::open(std::move(path), options);
}

const std::vector<std::size_t> sizes{0, 1, 511, 512, 513, 4095, 4096, 4097, 8191, 65536, (1U << 20) + 1};

} // namespace

TEST_CASE("File.reads_back_what_was_written_at_every_size") {
    const auto direct = GENERATE(false, true);
    const auto* root = GENERATE("", "/dev/shm");
    auto home = make_executor();
    temporary_directory dir(root);
    const auto body = [](std::string path, bool with_direct) -> sluice::task<void> {
        for (const std::size_t size : sizes) {
            INFO("size " << size << ", direct " << with_direct);
            auto opened = co_await open(path, {.mode = sluice::open_mode::read_write,
                                               .create = sluice::creation::truncate, .direct = with_direct});
            REQUIRE(opened);
            block data(size, static_cast<unsigned>(size));
            auto written = co_await opened->write(0, data.bytes());
            REQUIRE(written);
            auto status = co_await opened->stat();
            REQUIRE(status);
            CHECK(status->size_bytes == size);
            block back(size + 5000, 1);
            auto read = co_await opened->read(0, back.bytes());
            REQUIRE(read);
            CHECK(*read == size);
            CHECK(equal(back.part(0, size), data.bytes()));
            if (size != 0) {
                auto tail = co_await opened->read(size - 1, back.bytes());
                REQUIRE(tail);
                CHECK(*tail == 1);
                CHECK(back.bytes()[0] == data.bytes()[size - 1]);
            }
            auto beyond = co_await opened->read(size + 10000, back.bytes());
            REQUIRE(beyond);
            CHECK(*beyond == 0);
            auto exact = co_await opened->read_exact(0, back.bytes());
            REQUIRE_FALSE(exact);
            CHECK(exact.error() == sluice::errc::end_of_file);
            auto closed = co_await opened->close();
            CHECK(closed);
        }
    };
    sluice::sync_wait(*home, body(dir / "file", direct));
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("File.direct_takes_any_offset_length_and_address") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write, .direct = true});
        REQUIRE(opened);
        sluice::file& f = *opened;
        if (!f.is_direct()) SKIP("no direct I/O under " << path);
        block data(3 * 65536);
        std::uint64_t expected_buffered = 0;
        for (const std::size_t offset : {0UL, 1UL, 511UL, 512UL, 4096UL, 4097UL})
            for (const std::size_t length : {1UL, 512UL, 4096UL, 4097UL, 65536UL, 65537UL})
                for (const std::size_t shift : {0UL, 1UL, 512UL, 4096UL}) {
                    INFO("offset " << offset << ", length " << length << ", shift " << shift);
                    const bool good = co_await round_trip(f, offset, data.part(shift, length), shift);
                    CHECK(good);
                    if (length == 1) expected_buffered += 2;
                }
        CHECK(f.stats().read.bytes(sluice::path::file_direct) > 0);
        CHECK(f.stats().write.bytes(sluice::path::file_direct) > 0);
        CHECK(f.stats().read.bytes(sluice::path::file_buffered) + f.stats().write.bytes(sluice::path::file_buffered) >=
              expected_buffered);
    };
    sluice::sync_wait(*home, body(dir / "file"));
}

TEST_CASE("File.direct_moves_the_aligned_body_past_the_page_cache") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write, .direct = true});
        REQUIRE(opened);
        sluice::file& f = *opened;
        if (!f.is_direct()) SKIP("no direct I/O under " << path);
        block data(4 * 4096 + 100);
        auto written = co_await f.write(0, data.bytes());
        REQUIRE(written);
        CHECK(f.stats().write.bytes(sluice::path::file_direct) == 4 * 4096);
        CHECK(f.stats().write.bytes(sluice::path::file_buffered) == 100);
        block back(4 * 4096 + 100, 1);
        // The head up to the next page is buffered, and memory that has the same remainder lets the rest go direct.
        auto read = co_await f.read(4000, back.part(4000, 3 * 4096 + 96));
        REQUIRE(read);
        CHECK(equal(back.part(4000, 3 * 4096 + 96), data.part(4000, 3 * 4096 + 96)));
        CHECK(f.stats().read.bytes(sluice::path::file_direct) > 2 * 4096);
        const auto before = f.stats().read;
        auto shifted = co_await f.read(0, back.part(1, 3 * 4096));
        REQUIRE(shifted);
        CHECK(f.stats().read.bytes(sluice::path::file_direct) == before.bytes(sluice::path::file_direct));
        CHECK(f.alignment_bytes() % 512 == 0);
    };
    sluice::sync_wait(*home, body(dir / "file"));
}

TEST_CASE("File.says_that_it_is_buffered_where_there_is_no_direct_io") {
    auto home = make_executor();
    temporary_directory dir("/dev/shm");
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::write, .direct = true});
        REQUIRE(opened);
        CHECK_FALSE(opened->is_direct());
        CHECK(opened->alignment_bytes() == 1);
        block data(4096);
        auto written = co_await opened->write(0, data.bytes());
        REQUIRE(written);
        CHECK(opened->stats().write.bytes(sluice::path::file_buffered) == 4096);
        CHECK(opened->stats().write.bytes(sluice::path::file_direct) == 0);
    };
    sluice::sync_wait(*home, body(dir / "file"));
}

TEST_CASE("File.open_creates_what_its_options_say") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        using sluice::creation;
        using sluice::open_mode;
        auto missing = co_await open(path, {});
        REQUIRE_FALSE(missing);
        CHECK(missing.error() == sluice::condition::not_found);
        CHECK(missing.error().message() == "open '" + path + "': No such file or directory");
        CHECK_FAILURE(co_await open(path, {.mode = open_mode::write, .create = creation::existing}));
        block data(10);
        {
            auto made = co_await open(path, {.mode = open_mode::write, .create = creation::exclusive, .permissions = 0600});
            REQUIRE(made);
            CHECK_SUCCESS(co_await made->write(0, data.bytes()));
            auto status = co_await made->stat();
            CHECK((status && status->permissions == 0600));
        }
        auto twice = co_await open(path, {.mode = open_mode::write, .create = creation::exclusive});
        REQUIRE_FALSE(twice);
        CHECK(twice.error() == sluice::condition::already_exists);
        {
            auto kept = co_await open(path, {.mode = open_mode::read_write});
            REQUIRE(kept);
            auto status = co_await kept->stat();
            CHECK((status && status->size_bytes == 10));
        }
        {
            auto more = co_await open(path, {.mode = open_mode::append, .direct = true});
            REQUIRE(more);
            CHECK_FALSE(more->is_direct());
            CHECK_SUCCESS(co_await more->write(0, data.bytes()));
            CHECK_SUCCESS(co_await more->write(0, data.bytes()));
            auto status = co_await more->stat();
            REQUIRE(status);
            CHECK(status->size_bytes == 30);
            auto unreadable = co_await more->read(0, data.bytes());
            REQUIRE_FALSE(unreadable);
            CHECK(unreadable.error() == std::errc::bad_file_descriptor);
        }
        auto emptied = co_await open(path, {.mode = open_mode::write});
        REQUIRE(emptied);
        auto status = co_await emptied->stat();
        CHECK((status && status->size_bytes == 0 && status->type == sluice::file_type::regular));
        auto nul = co_await open(std::string("a\0b", 3), {});
        REQUIRE_FALSE(nul);
        CHECK(nul.error() == sluice::condition::invalid);
    };
    sluice::sync_wait(*home, body(dir / "file"));
}

TEST_CASE("File.truncates_allocates_and_syncs") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write});
        REQUIRE(opened);
        sluice::file& f = *opened;
        CHECK_SUCCESS(co_await f.truncate(100'000));
        auto grown = co_await f.stat();
        CHECK((grown && grown->size_bytes == 100'000 && grown->allocated_bytes == 0));
        CHECK_SUCCESS(co_await f.allocate(0, 200'000));
        auto allocated = co_await f.stat();
        CHECK((allocated && allocated->size_bytes == 200'000 && allocated->allocated_bytes >= 200'000));
        CHECK_SUCCESS(co_await f.sync());
        CHECK_SUCCESS(co_await f.data_sync());
        auto nothing = co_await f.allocate(0, 0);
        REQUIRE_FALSE(nothing);
        CHECK(nothing.error() == sluice::condition::invalid);
        CHECK(nothing.error().message().find("allocate '" + path + "' at offset 0, 0 bytes") == 0);
        auto huge = co_await f.truncate(~std::uint64_t{0});
        REQUIRE_FALSE(huge);
        CHECK(huge.error() == sluice::condition::out_of_range);
        block data(1);
        auto far = co_await f.write(~std::uint64_t{0}, data.bytes());
        REQUIRE_FALSE(far);
        CHECK(far.error() == sluice::condition::out_of_range);
        CHECK_SUCCESS(co_await f.close());
        CHECK_FALSE(f);
        CHECK_SUCCESS(co_await f.close());
    };
    const auto before = open_descriptors();
    sluice::sync_wait(*home, body(dir / "file"));
    CHECK(open_descriptors() == before);
}

TEST_CASE("File.vectored_moves_more_segments_than_the_kernel_takes_at_once") {
    const auto direct = GENERATE(false, true);
    const std::size_t segment = GENERATE(as<std::size_t>{}, 1, 100, 4096);
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path, bool with_direct, std::size_t bytes) -> sluice::task<void> {
        constexpr std::size_t count = 1025;
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write, .direct = with_direct});
        REQUIRE(opened);
        block data(count * bytes);
        block back(count * bytes, 1);
        std::vector<std::span<const std::byte>> from;
        std::vector<std::span<std::byte>> to;
        for (std::size_t i = 0; i < count; ++i) {
            from.push_back(data.part(i * bytes, bytes));
            to.push_back(back.part(i * bytes, bytes));
            if (i % 100 == 0) from.push_back({}); // empty ones are fine
        }
        auto written = co_await opened->write_vectored(0, from);
        REQUIRE(written);
        auto read = co_await opened->read_vectored(0, to);
        REQUIRE(read);
        CHECK(*read == count * bytes);
        CHECK(equal(back.bytes(), data.bytes()));
        if (opened->is_direct() && bytes == 4096) {
            CHECK(opened->stats().write.bytes(sluice::path::file_direct) == count * bytes);
            CHECK(opened->stats().read.bytes(sluice::path::file_direct) == count * bytes);
        }
        // From the middle of one segment to beyond the end.
        auto short_read = co_await opened->read_vectored(bytes / 2 + 1, to);
        REQUIRE(short_read);
        CHECK(*short_read == count * bytes - (bytes / 2 + 1));
        CHECK(equal(back.part(0, *short_read), data.part(bytes / 2 + 1, *short_read)));
    };
    sluice::sync_wait(*home, body(dir / "file", direct, segment));
}

TEST_CASE("File.mixes_aligned_and_unaligned_segments_in_one_direct_operation") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write, .direct = true});
        REQUIRE(opened);
        block data(20 * 4096);
        block back(20 * 4096, 1);
        const std::vector<std::pair<std::size_t, std::size_t>> cuts{
            {0, 4096}, {4096, 8192}, {12288, 1}, {12289, 4095}, {16384, 4096}, {20480, 5000}, {25480, 3192}, {28672, 8192}};
        std::vector<std::span<const std::byte>> from;
        std::vector<std::span<std::byte>> to;
        for (const auto& [offset, n] : cuts) {
            from.push_back(data.part(offset, n));
            to.push_back(back.part(offset, n));
        }
        CHECK_SUCCESS(co_await opened->write_vectored(0, from));
        auto read = co_await opened->read_vectored(0, to);
        REQUIRE(read);
        CHECK(*read == 28672 + 8192);
        CHECK(equal(back.part(0, *read), data.part(0, *read)));
        if (opened->is_direct()) CHECK(opened->stats().write.bytes(sluice::path::file_direct) >= 6 * 4096);
    };
    sluice::sync_wait(*home, body(dir / "file"));
}

TEST_CASE("File.uses_registered_memory_where_the_ring_knows_it") {
    const auto direct = GENERATE(false, true);
    auto home = make_executor();
    temporary_directory dir;
    auto pool = sluice::memory_pool::create({.size_bytes = 4 << 20});
    REQUIRE(pool);
    if (const auto registered = home->register_memory((*pool)->registration()); !registered)
        SKIP(registered.error().message());
    const auto body = [](std::string path, sluice::memory_pool& memory, bool with_direct) -> sluice::task<void> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write, .direct = with_direct});
        REQUIRE(opened);
        auto from = co_await memory.allocate(100'000);
        auto to = co_await memory.allocate(100'000);
        REQUIRE((from && to));
        block data(100'000);
        std::memcpy(from->data(), data.bytes().data(), 100'000);
        CHECK_SUCCESS(co_await opened->write(0, *from));
        CHECK(opened->stats().fixed_operations >= 1);
        const auto written = opened->stats().fixed_operations;
        CHECK_SUCCESS(co_await opened->read_exact(0, *to));
        CHECK(opened->stats().fixed_operations > written);
        CHECK(equal(to->bytes(), data.bytes()));
        // A part of a buffer, at an odd place, and then memory of the program's own.
        auto part = co_await opened->read(777, to->subview(33, 5000));
        REQUIRE(part);
        CHECK(equal(to->bytes().subspan(33, 5000), data.part(777, 5000)));
        const auto before = opened->stats().fixed_operations;
        block own(100'000, 1);
        CHECK_SUCCESS(co_await opened->read_exact(0, own.bytes()));
        CHECK(equal(own.bytes(), data.bytes()));
        CHECK(opened->stats().fixed_operations == before);
    };
    sluice::sync_wait(*home, body(dir / "file", **pool, direct));
    home->unregister_memory((*pool)->registration());
}

TEST_CASE("File.transfers_and_syncs_touch_the_heap_not_once") {
    auto home = make_executor();
    temporary_directory dir("/dev/shm");
    const auto body = [](std::string path) -> sluice::task<std::uint64_t> {
        auto opened = co_await open(path, {.mode = sluice::open_mode::read_write});
        block memory(10'000);
        const std::array<std::span<std::byte>, 2> parts{memory.part(0, 5000), memory.part(5000, 5000)};
        bool good = opened.has_value();
        const auto before = sluice::testing::heap_allocations();
        for (int i = 0; i < 100 && good; ++i) {
            auto written = co_await opened->write(0, memory.bytes());
            auto read = co_await opened->read(0, memory.bytes());
            auto scattered = co_await opened->read_vectored(0, parts);
            auto synced = co_await opened->sync();
            good = written && read && scattered && synced;
        }
        const auto calls = sluice::testing::heap_allocations() - before;
        co_return good ? calls : ~std::uint64_t{0};
    };
    const auto calls = sluice::sync_wait(*home, body(dir / "file"));
    CHECK(calls == 0);
}
