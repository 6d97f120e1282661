#include "rdma/device.hpp"
#include "rdma/quirks.hpp"
#include "tests/rdma/fake_verbs.hpp"

#include <sluice/pool.hpp>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

using namespace sluice;
using Catch::Matchers::ContainsSubstring;
using rdma::device;
using sluice::testing::fake_device_options;
using sluice::testing::fake_verbs;

namespace {

constexpr std::uint32_t mlx5 = 0x02c9;

std::array<std::byte, 8192> memory{};

memory_region make_region(std::size_t offset = 0, std::size_t size_bytes = 4096, memory_kind kind = memory_kind::host) {
    auto made = memory_region::create(std::span(memory).subspan(offset, size_bytes), kind);
    REQUIRE(made);
    return std::move(*made);
}

device& open(ibv_context* context) {
    const auto made = device::of(context);
    if (!made) FAIL(made.error().message());
    return **made;
}

/// Closes before the fake counts.
struct world : fake_verbs {
    ~world() { device::close_all(); }
};

} // namespace

TEST_CASE("A device is opened once and says what it is") {
    world fake;
    fake_device_options options;
    options.limits.max_qp_wr = 77;
    options.ports.resize(2);
    options.ports[0].attributes.max_msg_sz = 12345678;
    options.ports[1].attributes.max_msg_sz = 0;
    ibv_context* const context = fake.add_device(options);
    device& d = open(context);
    CHECK(&d == &open(context));
    CHECK(fake.calls("alloc_pd") == 1);
    CHECK(d.name() == "fake0");
    CHECK(d.context() == context);
    CHECK(d.pd()->context == context);
    CHECK(d.limits().max_qp_wr == 77);
    CHECK(d.max_message_bytes(1) == 12345678);
    CHECK(d.max_message_bytes(2) == 4096);
    CHECK(d.is_alive());
    CHECK(std::string(d.quirks().kind) == "Soft-RoCE (rxe)");
}

TEST_CASE("Threads that open a device at once get the same") {
    world fake;
    ibv_context* const context = fake.add_device();
    std::array<device*, 4> got{};
    {
        std::vector<std::jthread> threads;
        for (auto& each : got)
            threads.emplace_back([&each, context] {
                if (auto made = device::of(context)) each = *made;
            });
    }
    for (const device* each : got) CHECK(each == got[0]);
    CHECK(fake.calls("alloc_pd") == 1);
}

TEST_CASE("A device that was unplugged keeps its context until nothing uses it") {
    world fake;
    ibv_context* const context = fake.add_device();
    std::optional<memory_region> region = make_region();
    device& d = open(context);
    const auto shared = d.register_shared(region->view(), sluice::access::remote_read);
    REQUIRE(shared);
    fake.unplug(context);
    fake.async_event(context, IBV_EVENT_DEVICE_FATAL);
    d.deregister_shared(*shared);
    region.reset();
    const auto again = device::of(context);
    REQUIRE_FALSE(again); // it is not among those that there are
    CHECK(again.error() == std::errc::no_such_device);
    CHECK_FALSE(d.is_alive());
    ibv_context* const other = fake.add_device();
    CHECK(open(other).is_alive());
    CHECK(device::known(other) == &open(other));
    CHECK(device::known(context) == nullptr);
}

TEST_CASE("A device that went while nobody watched its events is not given out") {
    world fake;
    ibv_context* const context = fake.add_device();
    device& first = open(context);
    CHECK(device::known(context) == &first);
    fake.async_event(context, IBV_EVENT_DEVICE_FATAL);
    device& second = open(context);
    CHECK(&first != &second);
    CHECK_FALSE(first.is_alive());
    CHECK(second.is_alive());
}

TEST_CASE("While a device is opened, others are, and those that are open are found") {
    world fake;
    ibv_context* const slow = fake.add_device();
    ibv_context* const quick = fake.add_device();
    ibv_context* const there = fake.add_device();
    device& known = open(there);
    const memory_region region = make_region();
    fake.hold_calls("reg_mr", slow);
    auto first = std::async(std::launch::async, [&] { return device::of(slow); });
    auto second = std::async(std::launch::async, [&] { return device::of(slow); });
    while (fake.waiting_calls() == 0) std::this_thread::yield();
    auto others = std::async(std::launch::async, [&] {
        const bool same = device::known(there) == &known && device::of(there).value() == &known;
        return same && device::known(slow) == nullptr && device::of(quick).has_value();
    });
    CHECK(others.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    fake.release_calls();
    CHECK(others.get());
    const auto made = first.get();
    REQUIRE(made);
    CHECK(*made == second.get().value());
}

TEST_CASE("Whichever call fails, opening names it and leaves nothing behind") {
    world fake;
    ibv_context* const context = fake.add_device();
    const memory_region region = make_region();
    int failures = 0;
    for (std::uint64_t nth = 1;; ++nth) {
        fake.fail_any(nth, EIO);
        const auto made = device::of(context);
        const std::string failed = fake.failed();
        fake.fail_no_more();
        if (made) {
            if (failed.empty()) break; // there was no n-th call
            // Opening went well all the same, and whoever needs what failed is told.
            CHECK((failed == "reg_mr" || failed == "is_fork_initialized"));
            if (failed == "reg_mr") {
                const auto key = (*made)->local_key(*region.view().registration());
                REQUIRE_FALSE(key);
                CHECK_THAT(key.error().message(), ContainsSubstring("ibv_reg_mr of 4096 bytes on fake0"));
            }
            device::close_all();
        } else {
            ++failures;
            CHECK(made.error() == std::errc::io_error);
            const bool of_all = failed == "get_devices";
            CHECK_THAT(made.error().message(), ContainsSubstring((of_all ? "rdma_" : "ibv_") + failed));
            if (!of_all) CHECK_THAT(made.error().message(), ContainsSubstring("fake0"));
        }
        CHECK(fake.alive().all() == 0);
    }
    CHECK(failures == 4); // get_devices, query_device, query_port, alloc_pd
}

TEST_CASE("Memory that a limit of the process forbids fails the opening, with the remedy") {
    world fake;
    ibv_context* const context = fake.add_device();
    const memory_region first = make_region(0);
    const memory_region second = make_region(4096);
    fake.fail("reg_mr", 2, ENOMEM);
    const auto made = device::of(context);
    REQUIRE_FALSE(made);
    CHECK(made.error() == condition::out_of_resources);
    CHECK_THAT(made.error().message(),
               ContainsSubstring("ibv_reg_mr of 4096 bytes on fake0") && ContainsSubstring("4096 bytes are needed") &&
                   (ContainsSubstring("this process may lock any amount") || ContainsSubstring("LimitMEMLOCK=")));
    CHECK(fake.alive().all() == 0);
    CHECK(open(context).local_key(*second.view().registration())); // the limit was raised
}

TEST_CASE("Memory is known to the device, whichever was there first") {
    world fake;
    ibv_context* const context = fake.add_device();
    const memory_region before = make_region(0);
    auto pool = memory_pool::create({.size_bytes = 2 << 20, .huge_pages = mode::off});
    REQUIRE(pool);
    device& d = open(context);
    std::optional<memory_region> after = make_region(4096, 100);
    const auto all = fake.registrations(context);
    REQUIRE(all.size() == 3);
    CHECK(all.back().mr->addr == memory.data() + 4096);
    CHECK(all.back().mr->length == 100);
    for (const auto& each : all) CHECK(each.access == IBV_ACCESS_LOCAL_WRITE); // no peer can reach it
    CHECK(d.local_key(*after->view().registration()).value() == all.back().mr->lkey);
    CHECK(d.local_key(*before.view().registration()));
    CHECK(d.local_key((*pool)->registration()));
    after.reset();
    CHECK(fake.alive().mrs == 2);
    const detail::registration made_elsewhere{memory.data(), 16};
    const auto unknown = d.local_key(made_elsewhere);
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error() == errc::invalid_argument);
    CHECK_THAT(unknown.error().message(), ContainsSubstring("fake0"));
}

TEST_CASE("Of three devices the one in the middle fails, and the keys of the others are theirs") {
    world fake;
    ibv_context* contexts[3];
    for (auto& each : contexts) each = fake.add_device();
    const memory_region region = make_region();
    device& first = open(contexts[0]);
    fake.fail("alloc_pd", 1, ENOMEM);
    const auto second = device::of(contexts[1]);
    REQUIRE_FALSE(second);
    CHECK_THAT(second.error().message(), ContainsSubstring("ibv_alloc_pd on fake1"));
    device& third = open(contexts[2]);
    for (auto [d, context] : {std::pair{&first, contexts[0]}, std::pair{&third, contexts[2]}}) {
        const auto known = fake.registrations(context);
        REQUIRE(known.size() == 1);
        CHECK(d->local_key(*region.view().registration()).value() == known[0].mr->lkey);
    }
    CHECK(fake.registrations(contexts[1]).empty());
}

TEST_CASE("Memory larger than the device registers is refused with both numbers, and only that") {
    world fake;
    fake_device_options options;
    options.limits.max_mr_size = 4095;
    ibv_context* const context = fake.add_device(options);
    const memory_region small = make_region(0, 4095);
    const memory_region large = make_region(0, 4096);
    device& d = open(context);
    CHECK(d.local_key(*small.view().registration()));
    const auto refused = d.local_key(*large.view().registration());
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == condition::out_of_resources);
    CHECK_THAT(refused.error().message(), ContainsSubstring("4096 bytes") && ContainsSubstring("at most 4095"));
    const auto shared = d.register_shared(large.view(), sluice::access::remote_read);
    REQUIRE_FALSE(shared);
    CHECK_THAT(shared.error().message(), ContainsSubstring("at most 4095"));
}

TEST_CASE("Memory of a GPU is refused") {
    world fake;
    ibv_context* const context = fake.add_device();
    device& d = open(context);
    const memory_region region = make_region(0, 4096, memory_kind::device);
    const auto key = d.local_key(*region.view().registration());
    REQUIRE_FALSE(key);
    CHECK(key.error() == condition::unsupported);
    CHECK_FALSE(d.register_shared(region.view(), sluice::access::remote_read));
    CHECK(fake.calls("reg_mr") == 0);
}

TEST_CASE("A share is exactly what was granted of exactly that range") {
    world fake;
    fake_device_options options;
    options.limits.vendor_id = mlx5;
    ibv_context* const context = fake.add_device(options);
    device& d = open(context);
    const memory_region region = make_region();
    const auto [granted, flags] = GENERATE(
        table<sluice::access, int>({{sluice::access::remote_read, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING},
                                    {sluice::access::remote_write, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE},
                                    {sluice::access::remote_atomic, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE},
                                    {sluice::access::remote_read | sluice::access::remote_write,
                                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE},
                                    {sluice::access::none, IBV_ACCESS_RELAXED_ORDERING}}));
    const auto made = d.register_shared(region.view().subview(100, 200), granted);
    REQUIRE(made);
    CHECK((*made)->addr == memory.data() + 100);
    CHECK((*made)->length == 200);
    CHECK(fake.registrations(context).back().access == flags);
    d.deregister_shared(*made);
    CHECK(fake.alive().mrs == 1);
    CHECK_FALSE(d.register_shared(region.view().first(0), granted));
}

TEST_CASE("A failed share leaves nothing and says what failed") {
    world fake;
    ibv_context* const context = fake.add_device();
    device& d = open(context);
    const memory_region region = make_region();
    const auto [reason, text] =
        GENERATE(table<int, std::string>({{EFAULT, "writable"}, {EAGAIN, "no keys left"}, {EINVAL, "ibv_devinfo"}}));
    fake.fail("reg_mr", 1, reason);
    const auto refused = d.register_shared(region.view(), sluice::access::remote_write);
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message(),
               ContainsSubstring("ibv_reg_mr of 4096 bytes on fake0") && ContainsSubstring(text));
    CHECK(fake.alive().mrs == 1);
}

TEST_CASE("Relaxed ordering is for local memory of real devices, until one refuses it") {
    world fake;
    fake_device_options options;
    options.limits.vendor_id = mlx5;
    options.knows_relaxed_ordering = GENERATE(true, false);
    ibv_context* const context = fake.add_device(options);
    const memory_region before = make_region();
    device& d = open(context);
    const memory_region after = make_region();
    const int expected = IBV_ACCESS_LOCAL_WRITE | (options.knows_relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0);
    for (const auto& each : fake.registrations(context)) CHECK(each.access == expected);
    CHECK(fake.calls("reg_mr") == (options.knows_relaxed_ordering ? 2 : 3)); // asked for once in vain
    // Slots and headers are polled by what they say.
    const auto mine = d.register_private(memory.data(), 64);
    REQUIRE(mine);
    CHECK(fake.registrations(context).back().access == IBV_ACCESS_LOCAL_WRITE);
    d.deregister_private(*mine);
}

TEST_CASE("What kinds of devices do differently is found by vendor and transport") {
    world fake;
    fake_device_options options;
    SECTION("hardware that speaks iWARP answers a read by writing") {
        options.node = IBV_NODE_RNIC;
        options.transport = IBV_TRANSPORT_IWARP;
        options.limits.vendor_id = 0x1425;
        ibv_context* const context = fake.add_device(options);
        const memory_region region = make_region();
        device& d = open(context);
        CHECK(d.quirks().iwarp);
        CHECK_FALSE(d.quirks().atomics);
        CHECK(d.quirks().confirms_by_reading);
        CHECK(fake.registrations(context)[0].access ==
              (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING));
        const auto made = d.register_shared(region.view(), sluice::access::remote_read | sluice::access::remote_atomic);
        REQUIRE(made);
        CHECK((fake.registrations(context).back().access & IBV_ACCESS_REMOTE_ATOMIC) == 0);
        d.deregister_shared(*made);
    }
    SECTION("soft-iWARP does not") {
        options.node = IBV_NODE_RNIC;
        options.transport = IBV_TRANSPORT_IWARP;
        options.limits.vendor_id = 0x626d74;
        options.limits.atomic_cap = IBV_ATOMIC_NONE;
        ibv_context* const context = fake.add_device(options);
        const memory_region region = make_region();
        CHECK(std::string(open(context).quirks().kind) == "soft-iWARP (siw)");
        CHECK(open(context).quirks().iwarp);
        CHECK(open(context).quirks().confirms_by_reading);
        CHECK(fake.registrations(context)[0].access == IBV_ACCESS_LOCAL_WRITE);
    }
    SECTION("a device without atomics has none, whoever made it") {
        options.limits.vendor_id = mlx5;
        options.limits.atomic_cap = IBV_ATOMIC_NONE;
        device& d = open(fake.add_device(options));
        CHECK_FALSE(d.quirks().atomics);
        CHECK_FALSE(d.quirks().confirms_by_reading);
    }
}
