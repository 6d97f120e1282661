#include "runtime/registration.hpp"
#include "tests/support/death.hpp"

#include <sluice/pool.hpp>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <latch>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

using namespace sluice;

namespace {

std::array<std::byte, 4096> memory{};

/// Counts what it knows; `keys` numbers what it attached.
class counting final : public detail::registrar {
public:
    struct key : detail::registrar_record {
        explicit key(int k) : number(k) { ++alive; }
        ~key() override { --alive; }
        int number;
        static inline std::atomic<int> alive{0};
    };
    std::unique_ptr<detail::registrar_record> attach(const detail::registration& what) noexcept override {
        if (hook) hook();
        const std::lock_guard lock(mutex);
        if (what.size_bytes == refused) return nullptr;
        attached.push_back(what.base);
        return std::make_unique<key>(static_cast<int>(attached.size()));
    }
    void detach(detail::registrar_record& what) noexcept override {
        const std::lock_guard lock(mutex);
        detached.push_back(static_cast<key&>(what).number);
    }
    std::optional<int> number_of(const memory_region& region) const {
        const auto* found = detail::find_record(*region.view().registration(), *this);
        if (found == nullptr) return std::nullopt;
        return static_cast<const key*>(found)->number;
    }
    std::mutex mutex;
    std::vector<std::byte*> attached;
    std::vector<int> detached;
    std::size_t refused = 0;
    void (*hook)() = nullptr;
};

memory_region make(std::size_t offset, std::size_t size_bytes = 64) {
    auto made = memory_region::create(std::span(memory).subspan(offset, size_bytes));
    REQUIRE(made);
    return std::move(*made);
}

} // namespace

TEST_CASE("A registrar meets memory that is there, and memory that comes") {
    std::optional<memory_region> before = make(0);
    counting device;
    detail::add_registrar(device);
    CHECK(device.attached.size() == 1);
    CHECK(device.number_of(*before) == 1);
    std::optional<memory_region> after = make(64);
    CHECK(device.number_of(*after) == 2);
    SECTION("and is told when the memory goes") {
        before.reset();
        CHECK(device.detached == std::vector<int>{1});
        memory_region moved = std::move(*after);
        after.reset();
        CHECK(device.detached.size() == 1); // it lives on where it was moved to
        CHECK(device.number_of(moved) == 2);
    }
    SECTION("what it refuses has nothing of it") {
        device.refused = 100;
        CHECK(device.number_of(make(128, 100)) == std::nullopt);
    }
    detail::remove_registrar(device);
    CHECK(device.detached.size() == device.attached.size());
    if (before) CHECK(device.number_of(*before) == std::nullopt);
    before.reset();
    after.reset();
    CHECK(device.detached.size() == 2); // once each
    CHECK(counting::key::alive == 0);
}

TEST_CASE("A pool is announced for as long as it lives") {
    counting device;
    detail::add_registrar(device);
    {
        auto pool = memory_pool::create({.size_bytes = 2 << 20, .huge_pages = mode::off});
        REQUIRE(pool);
        CHECK(detail::find_record((*pool)->registration(), device) != nullptr);
        CHECK(device.attached == std::vector<std::byte*>{(*pool)->registration().base});
    }
    CHECK(device.detached.size() == 1);
    detail::remove_registrar(device);
}

TEST_CASE("Each of several registrars finds its own") {
    counting first, second, third;
    detail::add_registrar(first);
    detail::add_registrar(second);
    const memory_region region = make(0);
    detail::add_registrar(third);
    third.attached.clear();
    for (counting* each : {&first, &second, &third}) CHECK(each->number_of(region) == 1);
    detail::remove_registrar(second); // the one in the middle
    CHECK(first.number_of(region) == 1);
    CHECK(second.number_of(region) == std::nullopt);
    CHECK(third.number_of(region) == 1);
    detail::remove_registrar(first);
    detail::remove_registrar(third);
}

TEST_CASE("Registrars that left leave nothing behind") {
    const memory_region region = make(0);
    counting stays;
    detail::add_registrar(stays);
    for (int i = 0; i < 1000; ++i) {
        counting passing;
        detail::add_registrar(passing);
        CHECK(passing.number_of(region) == 1);
        detail::remove_registrar(passing);
        CHECK(counting::key::alive == 1);
    }
    CHECK(stays.number_of(region) == 1);
    // So that looking one up stays short: there are as many places as there were registrars at once.
    std::size_t places = 0;
    for (const auto* each = region.view().registration()->attachments.load(); each != nullptr; each = each->next())
        ++places;
    CHECK(places == 2);
    detail::remove_registrar(stays);
}

TEST_CASE("Memory may go while a registrar attaches, or detaches, other memory") {
    struct slow final : detail::registrar {
        std::atomic<bool> slowly{false};
        std::latch begun{1}, go_on{1};
        const void* first = nullptr;
        void work(const void* on) {
            if (!slowly.exchange(false)) return;
            first = on;
            begun.count_down();
            go_on.wait();
        }
        struct key : detail::registrar_record {
            explicit key(const void* a) : at(a) {}
            const void* at;
        };
        std::unique_ptr<detail::registrar_record> attach(const detail::registration& what) noexcept override {
            work(what.base);
            return std::make_unique<key>(what.base);
        }
        void detach(detail::registrar_record& what) noexcept override { work(static_cast<key&>(what).at); }
    };
    const bool attaching = GENERATE(true, false);
    std::optional<memory_region> a = make(0);
    std::optional<memory_region> b = make(64);
    slow device;
    if (!attaching) detail::add_registrar(device);
    device.slowly = true;
    std::jthread other([&] {
        if (attaching) detail::add_registrar(device);
        else detail::remove_registrar(device);
    });
    device.begun.wait();
    std::optional<memory_region>& idle = device.first == memory.data() ? b : a;
    std::optional<memory_region> again;
    auto gone = std::async(std::launch::async, [&] {
        idle.reset();
        again = make(0); // may be in the same place; the registrar meets it once
    });
    CHECK(gone.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    device.go_on.count_down();
    other.join();
    gone.wait();
    CHECK((detail::find_record(*again->view().registration(), device) != nullptr) == attaching);
    if (attaching) detail::remove_registrar(device);
    CHECK(detail::find_record(*again->view().registration(), device) == nullptr);
}

TEST_CASE("Memory and registrars may come and go on all threads at once") {
    std::atomic<bool> done{false};
    std::atomic<int> missing{0};
    counting stays;
    detail::add_registrar(stays);
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            while (!done) {
                auto region = memory_region::create(std::span(memory).subspan(64 * t, 64));
                if (!region || !stays.number_of(*region)) ++missing;
            }
        });
    for (int i = 0; i < 300; ++i) {
        counting passing;
        passing.hook = [] { std::this_thread::yield(); };
        detail::add_registrar(passing);
        detail::remove_registrar(passing);
        CHECK(passing.attached.size() == passing.detached.size());
    }
    done = true;
    threads.clear();
    CHECK(missing == 0);
    detail::remove_registrar(stays);
    CHECK(stays.attached.size() == stays.detached.size());
    CHECK(counting::key::alive == 0);
}

TEST_CASE("Adding a registrar twice is a broken contract") {
    CHECK_BREAKS_CONTRACT("added twice", static counting device; detail::add_registrar(device);
                          detail::add_registrar(device));
}
