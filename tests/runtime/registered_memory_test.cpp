#include "runtime/buffer_table.hpp"
#include "tests/support/death.hpp"

#include <sluice/executor.hpp>
#include <sluice/log.hpp>
#include <sluice/pool.hpp>
#include <sluice/runtime.hpp>
#include <sluice/sync_wait.hpp>
#include <sluice/task.hpp>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

using sluice::detail::buffer_table;
using sluice::detail::registration;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t gib = std::size_t{1} << 30;

/// Remembers what it was told to register, and refuses from a given slot on.
class recording_engine final : public sluice::detail::engine {
public:
    std::vector<iovec> slots = std::vector<iovec>(buffer_slots);
    int refuse_with = 0;

    sluice::result<void> register_buffers(std::uint32_t first_slot, std::span<const iovec> buffers) override {
        if (refuse_with != 0) return sluice::error::from_errno(refuse_with, "register");
        std::copy(buffers.begin(), buffers.end(), slots.begin() + first_slot);
        return {};
    }
    void unregister_buffers(std::uint32_t first_slot, std::uint32_t count) noexcept override {
        std::fill_n(slots.begin() + first_slot, count, iovec{});
    }
    std::size_t used() const {
        return static_cast<std::size_t>(
            std::count_if(slots.begin(), slots.end(), [](const iovec& v) { return v.iov_base != nullptr; }));
    }

    void drive(sluice::detail::executor_impl&, sluice::executor&, const bool*) noexcept override {}
    void cancel(sluice::operation&) noexcept override {}
    void turn() noexcept override {}
    void turn_and_wait(std::optional<std::chrono::steady_clock::time_point>) noexcept override {}
    void wake() noexcept override {}
    sluice::result<std::uint32_t> register_file(int) override { return sluice::errc::unsupported; }
    void unregister_file(std::uint32_t) noexcept override {}
    bool supports(sluice::opcode) const noexcept override { return false; }
    sluice::detail::engine_stats stats() const noexcept override { return {}; }
    std::string description() const override { return "recording"; }
    std::vector<sluice::detail::engine_feature> features() const override { return {}; }
};

registration range(std::uintptr_t base, std::size_t size_bytes) { return {reinterpret_cast<std::byte*>(base), size_bytes}; }

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

/// A read or write whose memory is named by slot.
class fixed_transfer : public sluice::operation {
public:
    fixed_transfer(sluice::opcode code, int fd, std::uint64_t offset, sluice::const_region_view memory, std::uint16_t slot) {
        request_.code = code;
        request_.fd = fd;
        request_.offset = offset;
        request_.address = reinterpret_cast<std::uint64_t>(memory.data());
        request_.length = static_cast<std::uint32_t>(memory.size_bytes());
        request_.buffer_index = slot;
    }
    int await_resume() const noexcept { return result_; }
};

sluice::task<int> transfer(sluice::opcode code, int fd, std::uint64_t offset, sluice::const_region_view memory,
                           std::uint16_t slot) {
    co_return co_await fixed_transfer(code, fd, offset, memory, slot);
}

struct temporary_file {
    temporary_file() : file(std::tmpfile()) {}
    ~temporary_file() {
        if (file != nullptr) std::fclose(file);
    }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    int fd() const { return fileno(file); }
    std::FILE* file;
};

void fill(sluice::region_view memory, unsigned seed) {
    for (std::size_t i = 0; i < memory.size_bytes(); ++i) memory.data()[i] = static_cast<std::byte>(i * 7 + seed);
}

bool holds(sluice::const_region_view memory, unsigned seed) {
    for (std::size_t i = 0; i < memory.size_bytes(); ++i)
        if (memory.data()[i] != static_cast<std::byte>(i * 7 + seed)) return false;
    return true;
}

/// In a child: no right to lock memory but what the limit leaves, as most programs run.
void become_ordinary_user(rlim_t memlock_bytes) {
    const rlimit limit{memlock_bytes, memlock_bytes};
    constexpr uid_t nobody = 65534;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(nobody) != 0)) _exit(70);
}

/// Writes and reads back through memory of the pool without naming slots; 0 when all is right.
int use_unregistered(sluice::executor& home, sluice::memory_pool& pool, int fd) {
    auto lease = std::move(pool.try_allocate(64 * 1024)).value();
    fill(lease, 3);
    if (sluice::sync_wait(home, transfer(sluice::opcode::write, fd, 0, lease, 0)) != 64 * 1024) return 71;
    fill(lease, 0);
    if (sluice::sync_wait(home, transfer(sluice::opcode::read, fd, 0, lease, 0)) != 64 * 1024) return 72;
    return holds(lease, 3) ? 0 : 73;
}

} // namespace

TEST_CASE("Buffer_table.splits_a_range_into_slots_of_a_gibibyte") {
    recording_engine ring;
    buffer_table table;
    REQUIRE(table.add(ring, range(gib, 2 * gib + mib)));
    CHECK(ring.used() == 3);
    CHECK(ring.slots[0].iov_base == at(gib));
    CHECK(ring.slots[0].iov_len == gib);
    CHECK(ring.slots[2].iov_base == at(3 * gib));
    CHECK(ring.slots[2].iov_len == mib);

    CHECK(table.find(at(gib), gib) == 0);
    CHECK(table.find(at(2 * gib), 1) == 1);
    CHECK(table.find(at(2 * gib - 1), 1) == 0);
    CHECK(table.find(at(2 * gib - 1), 2) == std::nullopt); // in two slots
    CHECK(table.find(at(3 * gib), mib) == 2);
    CHECK(table.find(at(3 * gib), mib + 1) == std::nullopt); // past the end
    CHECK(table.find(at(3 * gib + mib), 1) == std::nullopt);
    CHECK(table.find(at(gib - 1), 1) == std::nullopt);
    CHECK(table.find(at(gib - 1), 2) == std::nullopt);
    CHECK(table.find(nullptr, 0) == std::nullopt);
    CHECK(table.find(at(2 * gib), SIZE_MAX) == std::nullopt);
}

TEST_CASE("Buffer_table.keeps_several_ranges_and_uses_slots_again") {
    recording_engine ring;
    buffer_table table;
    REQUIRE(table.add(ring, range(8 * gib, 2 * gib)));
    REQUIRE(table.add(ring, range(4 * gib, mib)));
    CHECK(table.find(at(8 * gib), 1) == 0);
    CHECK(table.find(at(4 * gib), 1) == 2);
    table.remove(ring, range(8 * gib, 2 * gib));
    CHECK(ring.used() == 1);
    CHECK(table.find(at(8 * gib), 1) == std::nullopt);
    CHECK(table.find(at(4 * gib), 1) == 2);
    REQUIRE(table.add(ring, range(16 * gib, mib)));
    CHECK(table.find(at(16 * gib), mib) == 0);
    table.remove(ring, range(32 * gib, mib)); // never there
    CHECK(ring.used() == 2);
}

TEST_CASE("Buffer_table.a_range_that_needs_too_many_slots_is_an_error_with_the_numbers") {
    recording_engine ring;
    buffer_table table;
    const auto r = table.add(ring, range(gib, 2049 * gib));
    REQUIRE_FALSE(r);
    CHECK(r.error() == sluice::condition::out_of_resources);
    CHECK(r.error().message().find("need 2049 slots of the ring in a row, of its 2048 there are 2048") != std::string::npos);
    CHECK(ring.used() == 0);
}

TEST_CASE("Buffer_table.another_refusal_than_memlock_is_an_error_and_leaves_nothing") {
    recording_engine ring;
    buffer_table table;
    ring.refuse_with = EFAULT;
    const auto r = table.add(ring, range(gib, 3 * gib));
    REQUIRE_FALSE(r);
    CHECK(r.error() == std::errc::bad_address);
    CHECK(table.find(at(gib), 1) == std::nullopt);
    ring.refuse_with = 0;
    REQUIRE(table.add(ring, range(gib, 2048 * gib))); // all slots are free again
}

TEST_CASE("Buffer_table.overlapping_ranges_stop_the_process") {
    CHECK_BREAKS_CONTRACT("overlaps one that is registered already", recording_engine ring; buffer_table table;
                          static_cast<void>(table.add(ring, range(gib, 2 * gib)));
                          static_cast<void>(table.add(ring, range(3 * gib - 1, 1))));
}

TEST_CASE("Registered_memory.fixed_reads_and_writes_move_the_bytes_of_a_file") {
    auto home = std::move(sluice::executor::create()).value();
    auto pool = std::move(sluice::memory_pool::create({.size_bytes = 4 * mib})).value();
    REQUIRE(home->register_memory(pool->registration()));
    const temporary_file file;
    REQUIRE(file.file != nullptr);

    const auto out = pool->try_allocate(300'000);
    const auto in = pool->try_allocate(300'000, sluice::purpose::receive);
    REQUIRE(out);
    REQUIRE(in);
    fill(*out, 1);
    const auto slot = home->buffers().find(out->data(), out->size_bytes());
    REQUIRE(slot == 0);
    REQUIRE(home->buffers().find(in->data(), in->size_bytes()) == 0);
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::write_fixed, file.fd(), 4096, *out, *slot)) == 300'000);
    std::vector<std::byte> seen(300'000);
    REQUIRE(pread(file.fd(), seen.data(), seen.size(), 4096) == 300'000);
    CHECK(std::equal(seen.begin(), seen.end(), out->data()));
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::read_fixed, file.fd(), 4096, *in, *slot)) == 300'000);
    CHECK(holds(*in, 1));
}

TEST_CASE("Registered_memory.memory_that_is_unregistered_is_unknown_to_table_and_kernel") {
    auto home = std::move(sluice::executor::create()).value();
    auto pool = std::move(sluice::memory_pool::create({.size_bytes = 4 * mib})).value();
    std::vector<std::byte> own(10'000);
    const auto region = std::move(sluice::memory_region::create(own)).value();
    REQUIRE(home->register_memory(pool->registration()));
    REQUIRE(home->register_memory(*region.view().registration()));
    const temporary_file file;
    CHECK(home->buffers().find(own.data(), own.size()) == 1);
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::write_fixed, file.fd(), 0, region, 1)) == 10'000);

    const auto lease = pool->try_allocate(4096);
    REQUIRE(lease);
    home->unregister_memory(pool->registration());
    CHECK(home->buffers().find(lease->data(), 4096) == std::nullopt);
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::write_fixed, file.fd(), 0, *lease, 0)) == -EFAULT);
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::write_fixed, file.fd(), 0, region, 1)) == 10'000);
    REQUIRE(home->register_memory(pool->registration()));
    CHECK(sluice::sync_wait(*home, transfer(sluice::opcode::write_fixed, file.fd(), 0, *lease, 0)) == 4096);
    home->unregister_memory(pool->registration());
    home->unregister_memory(*region.view().registration());
}

TEST_CASE("Registered_memory.every_executor_of_a_runtime_knows_its_pool") {
    auto made = sluice::runtime::create({.executors = 2, .pool_bytes = 4 * mib});
    REQUIRE(made);
    sluice::runtime rt = std::move(*made);
    const auto knows = [](sluice::memory_pool& pool) -> sluice::task<bool> {
        sluice::executor& home = co_await sluice::this_executor();
        co_return home.buffers().find(pool.registration().base, 4 * mib).has_value();
    };
    CHECK(rt.sync_wait(knows(rt.pool()), 0));
    CHECK(rt.sync_wait(knows(rt.pool()), 1));
}

TEST_CASE("Registered_memory.device_memory_is_left_out") {
    auto home = std::move(sluice::executor::create()).value();
    std::vector<std::byte> pretended(4096);
    const auto region = std::move(sluice::memory_region::create(pretended, sluice::memory_kind::device)).value();
    CHECK(home->register_memory(*region.view().registration()));
    CHECK(home->buffers().find(pretended.data(), 1) == std::nullopt);
}

TEST_CASE("Registered_memory.under_a_small_memlock_limit_it_works_unregistered_and_says_so_once") {
    const auto end = sluice::testing::die_in_child(+[] {
        const temporary_file file;
        become_ordinary_user(2 * mib);
        auto pool = std::move(sluice::memory_pool::create({.size_bytes = 16 * mib})).value();
        for (int i = 0; i < 2; ++i) { // two executors, one line
            auto home = std::move(sluice::executor::create()).value();
            if (!home->register_memory(pool->registration())) _exit(74);
            if (home->buffers().find(pool->registration().base, 1)) _exit(75); // the limit did not bind
            if (const int wrong = use_unregistered(*home, *pool, file.fd()); wrong != 0) _exit(wrong);
        }
    });
    INFO(end.errors);
    CHECK(end.exit_status == 0);
    CHECK(end.signal == 0);
    CHECK(std::count(end.errors.begin(), end.errors.end(), '\n') == 1);
    CHECK(end.errors.find("sluice: warning: io_uring: registering memory: Cannot allocate memory; 16777216 bytes are to be "
                          "locked, for each executor anew, and the limit is 2097152 bytes (RLIMIT_MEMLOCK") == 0);
    CHECK(end.errors.find("LimitMEMLOCK=infinity) or grant CAP_IPC_LOCK\n") != std::string::npos);
}

TEST_CASE("Registered_memory.under_a_sufficient_memlock_limit_an_ordinary_user_registers_in_silence") {
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_max < 6 * mib) SKIP("the hard memlock limit is below 6 MiB");
    const auto end = sluice::testing::die_in_child(+[] {
        become_ordinary_user(6 * mib); // the pool, the ring, and what a ring that has just ended still counts
        auto pool = std::move(sluice::memory_pool::create({.size_bytes = 2 * mib})).value();
        auto home = std::move(sluice::executor::create()).value();
        if (!home->register_memory(pool->registration())) _exit(74);
        if (!home->buffers().find(pool->registration().base, 2 * mib)) _exit(75);
    });
    CHECK(end.errors.empty());
    CHECK(end.exit_status == 0);
}
