#include "tests/support/check_result.hpp"
#include "tests/support/temporary_directory.hpp"

#include "runtime/engine.hpp"

#include <sluice/file.hpp>
#include <sluice/file_system.hpp>
#include <sluice/scope.hpp>
#include <sluice/sync_wait.hpp>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

// Lengths over the kernel's cap, files that end early, full disks, limits, signals, and what is left behind.

using sluice::testing::open_descriptors;
using sluice::testing::temporary_directory;

namespace {

std::unique_ptr<sluice::executor> make_executor(sluice::executor_options options = {}) {
    return std::move(sluice::executor::create(options).value());
}

constexpr std::size_t gib = std::size_t{1} << 30;

/// Address space of `size` bytes that is all the same 2 MiB of memory, over and over.
class folded_memory {
public:
    static constexpr std::size_t fold_bytes = 2 << 20;
    explicit folded_memory(std::size_t size) : size_((size + fold_bytes - 1) / fold_bytes * fold_bytes) {
        const int fd = memfd_create("folded", MFD_CLOEXEC);
        REQUIRE(fd >= 0);
        REQUIRE(ftruncate(fd, fold_bytes) == 0);
        void* space = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(space != MAP_FAILED);
        base_ = static_cast<std::byte*>(space);
        for (std::size_t at = 0; at < size_; at += fold_bytes)
            REQUIRE(mmap(base_ + at, fold_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
        ::close(fd);
    }
    ~folded_memory() { munmap(base_, size_); }
    folded_memory(const folded_memory&) = delete;
    folded_memory& operator=(const folded_memory&) = delete;
    std::span<std::byte> first(std::size_t n) noexcept { return {base_, n}; }

private:
    std::byte* base_;
    std::size_t size_;
};

volatile std::sig_atomic_t signals_seen = 0;
void count_signal(int) { signals_seen = signals_seen + 1; }

/// Runs `body` in a child process, for limits that can't be taken back. It must return true.
bool in_child(bool (*body)()) {
    const pid_t child = fork();
    if (child == 0) _exit(body() ? 0 : 1);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

TEST_CASE("File_limits.reads_more_than_the_kernel_moves_at_once") {
    const std::size_t size = GENERATE(2 * gib - 4096, 2 * gib - 1, 2 * gib + 1, 4 * gib, 4 * gib + 1);
    INFO("size " << size);
    auto home = make_executor();
    temporary_directory dir;
    folded_memory memory(size);
    const auto body = [](std::string path, std::size_t n, std::span<std::byte> to) -> sluice::task<void> {
        // Direct, where that is possible, so that the page cache isn't filled with zeros.
        auto opened = co_await sluice::file::open(path, {.mode = sluice::open_mode::read_write, .direct = true});
        REQUIRE(opened);
        CHECK_SUCCESS(co_await opened->truncate(n)); // a hole: takes no disk
        const std::array<std::byte, 1> last{std::byte{'z'}};
        CHECK_SUCCESS(co_await opened->write(n - 1, last));
        auto read = co_await opened->read(0, to);
        REQUIRE(read);
        CHECK(*read == n);
        CHECK(to[n - 1] == std::byte{'z'});
        const auto& counters = opened->stats().read;
        CHECK(counters.operations == 1);
        CHECK(counters.bytes(sluice::path::file_direct) + counters.bytes(sluice::path::file_buffered) == n);
        if (opened->is_direct()) CHECK(counters.bytes(sluice::path::file_buffered) < 4096);
    };
    const auto before = home->stats().operations_started;
    sluice::sync_wait(*home, body(dir / "sparse", size, memory.first(size)));
    CHECK(home->stats().operations_started - before >= (size - 1) / 0x7ffff000 + 1);
}

TEST_CASE("File_limits.writes_more_than_the_kernel_moves_at_once") {
    // Nothing is stored; a length cut to 32 bits would show in the count.
    const std::size_t size = GENERATE(2 * gib + 1, 4 * gib, 4 * gib + 1);
    auto home = make_executor();
    folded_memory memory(size);
    const auto body = [](std::span<const std::byte> from) -> sluice::task<void> {
        auto opened = co_await sluice::file::open("/dev/null", {.mode = sluice::open_mode::write});
        REQUIRE(opened);
        CHECK_SUCCESS(co_await opened->write(0, from));
        CHECK(opened->stats().write.bytes(sluice::path::file_buffered) == from.size());
        const std::array<std::span<const std::byte>, 2> parts{from, from};
        CHECK_SUCCESS(co_await opened->write_vectored(0, parts));
        CHECK(opened->stats().write.bytes(sluice::path::file_buffered) == 3 * from.size());
    };
    sluice::sync_wait(*home, body(memory.first(size)));
}

TEST_CASE("File_limits.reads_buffered_more_than_the_kernel_moves_at_once") {
    auto home = make_executor();
    folded_memory memory(2 * gib + 1);
    const auto body = [](std::span<std::byte> to) -> sluice::task<void> {
        auto opened = co_await sluice::file::open("/dev/zero");
        REQUIRE(opened);
        to.back() = std::byte{1};
        auto read = co_await opened->read(0, to);
        REQUIRE(read);
        CHECK(*read == to.size());
        CHECK(to.back() == std::byte{0});
        CHECK(opened->stats().read.bytes(sluice::path::file_buffered) == to.size());
    };
    sluice::sync_wait(*home, body(memory.first(2 * gib + 1)));
}

TEST_CASE("File_limits.reads_across_four_gib_through_the_same_small_buffer") {
    auto home = make_executor();
    const int fd = memfd_create("sparse", MFD_CLOEXEC);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, static_cast<off_t>(4 * gib + 1)) == 0);
    REQUIRE(pwrite(fd, "end", 3, static_cast<off_t>(4 * gib - 2)) == 3);
    const auto body = [](int descriptor) -> sluice::task<void> {
        sluice::file f = sluice::file::adopt(descriptor, "sparse memfd");
        std::array<std::byte, 4096> buffer{};
        auto read = co_await f.read(4 * gib - 2, buffer);
        REQUIRE(read);
        CHECK(*read == 3);
        CHECK(std::memcmp(buffer.data(), "end", 3) == 0);
    };
    sluice::sync_wait(*home, body(fd));
}

TEST_CASE("File_limits.a_pipe_gives_all_bytes_in_pieces_until_its_end") {
    auto home = make_executor();
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const auto writer = [](sluice::file& to, std::size_t pieces) -> sluice::task<sluice::result<void>> {
        std::vector<std::byte> piece(1000);
        for (std::size_t i = 0; i < pieces; ++i) {
            for (std::byte& b : piece) b = static_cast<std::byte>(i);
            auto written = co_await to.write(0, piece);
            if (!written) co_return written;
            co_await sluice::yield();
        }
        co_return co_await to.close();
    };
    const auto body = [](auto make_writer, int in, int out) -> sluice::task<void> {
        sluice::file from = sluice::file::adopt(in, "pipe");
        sluice::file to = sluice::file::adopt(out, "pipe");
        sluice::scope children;
        children.spawn(make_writer(to, std::size_t{200}));
        std::vector<std::byte> first(100'000);
        CHECK_SUCCESS(co_await from.read_exact(0, first)); // more than a pipe holds
        std::vector<std::byte> rest(150'000);
        auto read = co_await from.read(0, rest);
        REQUIRE(read);
        CHECK(*read == 100'000);
        CHECK(first[99'999] == std::byte{99});
        CHECK(rest[0] == std::byte{100});
        CHECK(rest[99'999] == std::byte{199});
        CHECK_SUCCESS(co_await children.join());
    };
    sluice::sync_wait(*home, body(writer, ends[0], ends[1]));
}

TEST_CASE("File_limits.a_file_cut_while_it_is_read_ends_early_and_never_hangs") {
    const auto direct = GENERATE(false, true);
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path, bool with_direct) -> sluice::task<void> {
        auto opened = co_await sluice::file::open(path, {.mode = sluice::open_mode::read_write, .direct = with_direct});
        REQUIRE(opened);
        sluice::file& f = *opened;
        constexpr std::size_t size = 1 << 20;
        const auto memory = std::unique_ptr<std::byte, decltype(&std::free)>(
            static_cast<std::byte*>(std::aligned_alloc(4096, size)), &std::free);
        const std::span<std::byte> all(memory.get(), size);
        std::memset(all.data(), 'a', size);
        const auto reader = [](sluice::file& from, std::span<std::byte> to, std::size_t& got) -> sluice::task<sluice::result<void>> {
            auto read = co_await from.read(0, to);
            if (!read) co_return read.error();
            got = *read;
            co_return sluice::result<void>();
        };
        for (const std::uint64_t cut : {0ULL, 1ULL, 511ULL, 512ULL, 4096ULL, 4097ULL, 700'000ULL}) {
            INFO("cut to " << cut);
            CHECK_SUCCESS(co_await f.write(0, all));
            std::size_t got = ~std::size_t{0};
            sluice::scope children;
            children.spawn(reader(f, all, got));
            co_await sluice::yield();
            CHECK_SUCCESS(co_await f.truncate(cut));
            CHECK_SUCCESS(co_await children.join());
            CHECK(got <= size);
            CHECK(got >= cut);
            auto again = co_await f.read(0, all);
            REQUIRE(again);
            CHECK(*again == cut);
        }
    };
    sluice::sync_wait(*home, body(dir / "file", direct));
}

TEST_CASE("File_limits.the_size_limit_of_the_process_is_an_error_that_says_how_far_it_got") {
    CHECK(in_child(+[] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{100'000, 100'000};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
        auto home = make_executor();
        temporary_directory dir;
        const auto body = [](std::string path) -> sluice::task<bool> {
            auto opened = co_await sluice::file::open(path, {.mode = sluice::open_mode::write});
            std::vector<std::byte> data(150'000);
            auto written = co_await opened.value().write(0, data);
            const bool good = !written && written.error() == std::errc::file_too_large &&
                              written.error().message().find("write '" + path + "' at offset 0, 150000 bytes, 100000 done") == 0;
            if (!good) std::fprintf(stderr, "%s\n", written ? "no error" : written.error().message().c_str());
            co_return good && opened->stats().write.failures == 1;
        };
        return sluice::sync_wait(*home, body(dir / "file"));
    }));
}

TEST_CASE("File_limits.a_full_disk_is_no_space") {
    auto home = make_executor();
    const auto body = []() -> sluice::task<void> {
        auto opened = co_await sluice::file::open("/dev/full", {.mode = sluice::open_mode::write,
                                                                .create = sluice::creation::existing});
        REQUIRE(opened);
        std::vector<std::byte> data(10'000);
        auto written = co_await opened->write(0, data);
        REQUIRE_FALSE(written);
        CHECK(written.error() == sluice::condition::no_space);
        CHECK(written.error().message() == "write '/dev/full' at offset 0, 10000 bytes: No space left on device");
    };
    sluice::sync_wait(*home, body());
}

TEST_CASE("File_limits.signals_at_a_thousand_a_second_change_nothing") {
    auto home = make_executor();
    temporary_directory dir;
    struct sigaction action {};
    action.sa_handler = count_signal; // without SA_RESTART: calls end with EINTR
    struct sigaction before {};
    REQUIRE(sigaction(SIGALRM, &action, &before) == 0);
    const itimerval every_millisecond{{0, 1000}, {0, 1000}};
    REQUIRE(setitimer(ITIMER_REAL, &every_millisecond, nullptr) == 0);
    const auto body = [](std::string path) -> sluice::task<void> {
        auto opened = co_await sluice::file::open(path, {.mode = sluice::open_mode::read_write, .direct = true});
        REQUIRE(opened);
        constexpr std::size_t size = (1 << 20) + 1;
        std::vector<std::byte> data(size);
        std::vector<std::byte> back(size);
        for (unsigned round = 0; round < 20 || (signals_seen < 300 && round < 10'000); ++round) {
            for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 31 + round);
            CHECK_SUCCESS(co_await opened->write(0, data));
            if (round % 10 == 0) CHECK_SUCCESS(co_await opened->data_sync());
            CHECK_SUCCESS(co_await opened->read_exact(0, back));
            CHECK(std::memcmp(data.data(), back.data(), size) == 0);
        }
    };
    sluice::sync_wait(*home, body(dir / "file"));
    CHECK(signals_seen >= 300);
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before, nullptr);
}

TEST_CASE("File_limits.a_much_read_file_takes_a_slot_of_the_ring_and_gives_it_back") {
    auto home = make_executor({.registered_files = 1});
    temporary_directory dir;
    std::ofstream(dir / "a") << "from a";
    std::ofstream(dir / "b") << "from b";
    const auto read_often = [](sluice::file& f, const char* expected, int times) -> sluice::task<bool> {
        std::array<std::byte, 16> text{};
        for (int i = 0; i < times; ++i) {
            auto read = co_await f.read(0, text);
            if (!read || *read != 6 || std::memcmp(text.data(), expected, 6) != 0) co_return false;
        }
        co_return true;
    };
    const auto slots_left = [&]() -> bool {
        auto slot = home->ring().register_file(STDIN_FILENO);
        if (slot) home->ring().unregister_file(*slot);
        return slot.has_value();
    };
    const auto body = [](const temporary_directory& d, auto read, auto has_slot) -> sluice::task<void> {
        auto a = co_await sluice::file::open(d / "a");
        auto b = co_await sluice::file::open(d / "b");
        REQUIRE((a && b));
        bool good = co_await read(*a, "from a", 10);
        CHECK(good);
        CHECK(has_slot());
        good = co_await read(*a, "from a", 90);
        CHECK(good);
        CHECK_FALSE(has_slot());
        good = co_await read(*b, "from b", 100); // no slot left: does without
        CHECK(good);
        CHECK_SUCCESS(co_await a->close());
        CHECK(has_slot());
        *a = std::move(*b);
        auto again = co_await sluice::file::open(d / "b");
        REQUIRE(again);
        good = co_await read(*again, "from b", 100); // in the slot that was the other file's
        CHECK(good);
        CHECK_FALSE(has_slot());
    };
    sluice::sync_wait(*home, body(dir, read_often, slots_left));
    CHECK(slots_left());
}

TEST_CASE("File_limits.a_program_just_written_can_be_run") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](std::string path) -> sluice::task<void> {
        std::ifstream in("/bin/true", std::ios::binary);
        const std::string program{std::istreambuf_iterator<char>(in), {}};
        for (int round = 0; round < 50; ++round) {
            {
                auto opened = co_await sluice::file::open(path, {.mode = sluice::open_mode::write, .permissions = 0700});
                REQUIRE(opened);
                const auto bytes = std::as_bytes(std::span(program));
                for (std::size_t at = 0; at < bytes.size(); at += 512)
                    CHECK_SUCCESS(co_await opened->write(at, bytes.subspan(at, std::min<std::size_t>(512, bytes.size() - at))));
                if (round % 2 == 0) CHECK_SUCCESS(co_await opened->close());
            }
            const pid_t child = fork();
            if (child == 0) {
                execl(path.c_str(), path.c_str(), nullptr);
                _exit(errno);
            }
            int status = 0;
            REQUIRE(waitpid(child, &status, 0) == child);
            CHECK(WIFEXITED(status));
            CHECK(WEXITSTATUS(status) == 0); // ETXTBSY (26) while anybody has it open for writing
        }
    };
    sluice::sync_wait(*home, body(dir / "program"));
}

TEST_CASE("File_limits.a_stopped_task_leaves_no_descriptor_behind") {
    auto home = make_executor();
    temporary_directory dir;
    std::ofstream(dir / "file") << "text";
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        const auto opener = [](std::string path, int& opened, int& canceled) -> sluice::task<void> {
            auto f = co_await sluice::file::open(path, {.mode = sluice::open_mode::read_write, .direct = true});
            if (f) ++opened;
            else if (f.error() == sluice::condition::canceled) ++canceled;
        };
        int opened = 0;
        int canceled = 0;
        constexpr int rounds = 300;
        for (int round = 0; round < rounds; ++round) {
            sluice::scope children;
            children.spawn(opener(d / "file", opened, canceled));
            for (int turns = 0; turns < round % 7; ++turns) co_await sluice::yield();
            children.request_stop();
            static_cast<void>(co_await children.join());
        }
        CHECK(opened + canceled == rounds);
        CHECK(canceled > 0);
    };
    const auto before = open_descriptors();
    sluice::sync_wait(*home, body(dir));
    CHECK(open_descriptors() == before);
    CHECK(home->stats().in_flight == 0);
}

TEST_CASE("File_limits.an_open_that_made_its_file_hands_it_over_though_stopped") {
    auto home = make_executor();
    temporary_directory dir;
    const auto body = [](const temporary_directory& d) -> sluice::task<void> {
        const auto opener = [](std::string path, int& canceled) -> sluice::task<void> {
            auto f = co_await sluice::file::open(
                path, {.mode = sluice::open_mode::write, .create = sluice::creation::exclusive, .direct = true});
            if (f) co_return;
            ++canceled;
            CHECK(f.error() == sluice::condition::canceled);
            CHECK(access(path.c_str(), F_OK) != 0); // nobody would know that it is there
        };
        int canceled = 0;
        for (int round = 0; round < 300; ++round) {
            const std::string path = d / std::to_string(round);
            sluice::scope children;
            children.spawn(opener(path, canceled));
            // Stopped just when the file has come into being, or, now and then, before it was asked for.
            while (round % 10 != 0 && access(path.c_str(), F_OK) != 0) co_await sluice::yield();
            children.request_stop();
            static_cast<void>(co_await children.join());
        }
        CHECK(canceled < 300);
    };
    sluice::sync_wait(*home, body(dir));
}

TEST_CASE("File_limits.a_stopped_token_makes_no_request_but_closes") {
    auto home = make_executor();
    temporary_directory dir;
    std::ofstream(dir / "file") << "text";
    auto opened = sluice::sync_wait(*home, sluice::file::open(dir / "file", {.mode = sluice::open_mode::read_write}));
    REQUIRE(opened);
    const auto before = open_descriptors();
    const auto body = [](sluice::file& f, const temporary_directory& d) -> sluice::task<void> {
        std::array<std::byte, 8> memory{};
        const auto canceled = [](const auto& r) { return !r && r.error() == sluice::condition::canceled; };
        auto read = co_await f.read(0, memory);
        CHECK(canceled(read));
        auto none = co_await f.read(0, std::span<std::byte>{});
        CHECK(canceled(none));
        auto written = co_await f.write(0, memory);
        CHECK(canceled(written));
        auto synced = co_await f.sync();
        CHECK(canceled(synced));
        auto allocated = co_await f.allocate(0, 10);
        CHECK(canceled(allocated));
        auto status = co_await f.stat();
        CHECK(canceled(status));
        auto renamed = co_await sluice::rename(d / "file", d / "other");
        CHECK(canceled(renamed));
        auto removed = co_await sluice::remove(d / "file");
        CHECK(canceled(removed));
        auto again = co_await sluice::file::open(d / "file");
        CHECK(canceled(again));
        CHECK_SUCCESS(co_await f.close());
    };
    sluice::stop_source source;
    source.request_stop();
    const auto started = home->stats().operations_started;
    sluice::sync_wait(*home, body(*opened, dir), source.token());
    CHECK(home->stats().operations_started == started);
    CHECK(open_descriptors() == before - 1);
}

TEST_CASE("File_limits.a_read_that_waits_is_canceled") {
    auto home = make_executor();
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const auto body = [](int in) -> sluice::task<void> {
        sluice::file from = sluice::file::adopt(in, "pipe");
        const auto reader = [](sluice::file& f) -> sluice::task<sluice::result<void>> {
            std::array<std::byte, 8> memory{};
            co_return co_await f.read_exact(0, memory);
        };
        sluice::scope children;
        children.spawn(reader(from));
        for (int turns = 0; turns < 3; ++turns) static_cast<void>(co_await sluice::nop());
        children.request_stop();
        static_cast<void>(co_await children.join());
        CHECK(from.stats().read.failures == 1);
    };
    sluice::sync_wait(*home, body(ends[0]));
    ::close(ends[1]);
}
